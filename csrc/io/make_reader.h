// The one place where a reader is chosen and its decorators are stacked: throttled(faulty(pread or uring)).
// An impossible wish is an error; nothing falls back in silence.
//
// auto is pread. Measured by bench_reader on a virtual disk of about 3.4 GB/s with two cores, direct reads of 2.8 MB at
// depth 1 to 8: both readers reach 0.94 to 1.06 of bare pread loops and differ by less than the disk does from second
// to second (pread 3.5 and 3.6 GB/s, io_uring 3.5 and 3.6 GB/s at depth 4 and 8; 5 to 8 % of a core either way). Of
// unaligned extents pread reaches more (0.88 to 0.76 at depth 8), for its lanes share the copying; and it works
// everywhere.
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
