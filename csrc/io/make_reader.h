// The one place where a reader is chosen and its decorators are stacked: throttled(faulty(pread or uring)).
// Pure but for what it starts. An impossible wish is an error; nothing falls back in silence.
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
  std::string kind = "auto";           // auto, pread, uring
  int lanes = 0;                       // reads at a time, 1 to 256; 0: default_lanes()
  std::optional<FlashModel> flash;     // simulate this device on top
  std::optional<FaultOptions> fault;   // tests only
  Clock* clock = nullptr;              // of the simulation; null: the machine's
};

// Lanes of the real reader when the caller names none.
int default_lanes(const ReaderOptions& options);
// Memory for bounce buffers, to be counted in the budget. Committed only as unaligned extents need it.
uint64_t plan_reader_bytes(const ReaderOptions& options);

Result<std::unique_ptr<AsyncReader>> make_reader(const ReaderOptions& options, CompletionSink* sink);

}  // namespace les
