// The one place where a reader is chosen and its decorators are stacked: throttled(faulty(pread or uring)).
// An impossible wish is an error; nothing falls back in silence.
//
// auto is pread. Measured by bench_reader on a virtual disk of 3 to 3.6 GB/s with two cores, direct reads, as a
// fraction of bare pread loops of the same size and depth (which themselves differ by 0.1 to 0.3 between runs):
//   2.8 MB aligned, depth 1, 2, 4, 8    pread 1.07 1.01 1.28 0.94    io_uring 1.10 0.97 1.09 0.89
//   2.8 MB unaligned, depth 4, 8        pread 1.02 0.85              io_uring 0.73 0.79
//   128 KiB aligned, depth 4, 16        pread 0.96 0.96              io_uring 0.86 0.80
// io_uring is nowhere better beyond the noise. Of unaligned extents pread reaches more, for its lanes share the
// copying. Both take 5 to 14 % of a core for large aligned reads, and pread works everywhere.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "io/async_reader.h"
#include "io/faulty_reader.h"
#include "io/throttled_reader.h"

namespace les {

struct ReaderOptions {
  std::string kind = "auto";  // auto, pread, uring
  int lanes = 0;  // reads at a time, 1 to 256; 0: default_lanes()
  std::optional<FlashModel> flash;  // simulate this device on top
  std::optional<FaultOptions> fault;  // tests only
  Clock* clock = nullptr;  // of the simulation; null: the machine's
};

// Lanes of the real reader when the caller names none.
int default_lanes(const ReaderOptions& options);
// Memory for bounce buffers, to be counted in the budget. Committed only as unaligned extents need it.
uint64_t plan_reader_bytes(const ReaderOptions& options);

Result<std::unique_ptr<AsyncReader>> make_reader(const ReaderOptions& options, CompletionSink* sink);

}  // namespace les
