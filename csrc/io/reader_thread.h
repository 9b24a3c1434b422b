// How a reader's thread asks the system to be woken in time. Best effort: what is refused changes speed only.
#pragma once

namespace les {

// For the calling thread: timers without slack, and a short scheduling slice, so that a woken reader thread runs before
// a compute thread's slice is over. Measured on two cores with two busy threads (and a little other load), bursts of 8
// reads of 1.8 MB from simulated flash over the page cache, medians of 6 interleaved runs: ufs4 takes 1.07 of the
// modelled time instead of 1.62, nvme 1.25 instead of 1.68 (copying out of the page cache takes the rest there).
// Needs Linux 6.12 for the slice; never tried on Android.
void tune_reader_thread();

}  // namespace les
