// Faults on purpose, for tests: every n-th system read or completion goes wrong in a chosen way.
// short, eintr, eagain, eio and einval change what the kernel answered before the retry loop sees it, and spoil the
// bytes that the changed answer does not cover; reorder and delay change when completions are delivered.
// Thread-safety: as AsyncReader.
//
// 1. Only eio (and einval, on a buffered read) may make a request fail; the others must be invisible but for time.
// 2. reorder holds a completion back until another one passed it, or until nothing else is in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "io/async_reader.h"
#include "io/pread_reader.h"

namespace les {

enum class FaultKind { kShort, kEintr, kEagain, kEio, kEinval, kReorder, kDelay };

struct FaultOptions {
  FaultKind kind = FaultKind::kShort;
  int every_n = 1;            // 1: all of them (eintr and eagain then fail in the end, after many retries)
  int64_t delay_ns = 2'000'000;
};

// "KIND,N" or "delay,N,us": "short,3", "eio,10", "delay,4,500".
Result<FaultOptions> parse_fault(std::string_view text);

// The part that changes answers; empty for reorder and delay. Counts on its own.
ReadHook make_fault_hook(const FaultOptions& options);

// make_inner gets the hook to install and the sink to complete into.
using FaultyInnerFactory = std::function<Result<std::unique_ptr<AsyncReader>>(ReadHook, CompletionSink*)>;

Result<std::unique_ptr<AsyncReader>> make_faulty_reader(const FaultOptions& options, CompletionSink* sink,
                                                        const FaultyInnerFactory& make_inner);

}  // namespace les
