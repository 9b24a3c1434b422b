// How a reader's thread asks the system to be woken in time. Best effort: what is refused changes speed only.
#pragma once

namespace les {

// For the calling thread: timers without slack, and a short scheduling slice, so that a woken reader thread runs before
// a compute thread's slice is over. Measured on two cores with two busy threads, bursts of 8 reads of 1.8 MB from
// simulated ufs4 over the page cache: 1.09-1.15 of the modelled time instead of 1.38-1.58, delivery late by 0.2-0.5 ms
// instead of 4.3-5.5 ms at the ninth decile. Needs Linux 6.12 for the slice; never tried on Android.
void tune_reader_thread();

}  // namespace les
