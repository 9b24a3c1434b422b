// Reads on a pool of threads, one blocking system read at a time on each ("lane"). Works everywhere.
// Thread-safety: as AsyncReader; submit, promote, cancel and stats are guarded by one mutex. Idle lanes sleep.
// Memory: kBounceBytes per lane, committed (in huge pages where there are) when an unaligned direct read first needs
// it.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "io/async_reader.h"
#include "io/transfer.h"

namespace les {

// Sees what the kernel answered (bytes or -errno) before the retry loop does, and may change the answer and spoil the
// memory behind it. Called on reader threads, several at once. Empty outside tests.
using ReadHook = std::function<int64_t(std::span<const iovec> parts, int64_t result)>;

// lanes < 1 counts as 1. Null when the system starts not one thread; with fewer threads than asked, name() says so.
std::unique_ptr<AsyncReader> make_pread_reader(int lanes, CompletionSink* sink, ReadHook hook = {});

}  // namespace les
