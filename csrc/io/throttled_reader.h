// Simulated flash: a decorator that delivers each read no earlier than a modelled device would.
// The inner reader must be faster than the model (page cache, or a faster disk); its reads are real.
//
// The model: at most `lanes` requests are in service, demand before prefetch. Each pays latency_ns from the start of
// its service; then its bytes cross one bus of bandwidth_bytes_per_s, in the order of service:
//   end = max(start + latency, end of the previous transfer) + size / bandwidth
// A waiting request starts when a lane falls free, at the modelled time of that completion.
//
// Thread-safety: as AsyncReader; one mutex. One thread that sleeps until the next modelled completion; it never spins.
// 1. Completions come in order of service, with modelled start_ns and end_ns; end_ns is later than the model only when
//    the inner reader was.
// 2. A cancelled request completes when the thread next wakes: at once when idle, else with the next completion.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "io/async_reader.h"

namespace les {

struct FlashModel {
  double bandwidth_bytes_per_s = 0;
  int lanes = 1;
  int64_t latency_ns = 0;
  friend bool operator==(const FlashModel&, const FlashModel&) = default;
};

// "ufs4" (2.0 GB/s, 2 lanes, 150 us), "nvme" (6 GB/s, 32 lanes, 80 us), "emmc" (300 MB/s, 1 lane, 300 us), or
// "GB/s,lanes,us" as in "2.0,2,150".
Result<FlashModel> parse_flash(std::string_view text);

// The modelled time on the bus.
int64_t transfer_ns(const FlashModel& model, uint64_t size_bytes);

// Makes a reader that completes into the given sink.
using ReaderFactory = std::function<Result<std::unique_ptr<AsyncReader>>(CompletionSink*)>;

// clock outlives the reader.
Result<std::unique_ptr<AsyncReader>> make_throttled_reader(const FlashModel& model, Clock* clock, CompletionSink* sink,
                                                           const ReaderFactory& make_inner);

}  // namespace les
