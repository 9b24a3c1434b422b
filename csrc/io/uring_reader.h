// Reads through io_uring: one thread submits and reaps, at most `depth` reads are with the kernel.
// Raw system calls on a ring of its own. Never built for Android, whose sandbox kills a process that asks for a ring.
// Thread-safety: as AsyncReader; submit, promote, cancel and stats are guarded by one mutex. The thread sleeps when
// idle.
// Memory: kBounceBytes per read in flight, committed (in huge pages where there are) when an unaligned direct read
// first needs it.
#pragma once

#include <memory>

#include "base/status.h"
#include "io/async_reader.h"
#include "io/pread_reader.h"

#if defined(__linux__) && !defined(__ANDROID__) && __has_include(<linux/io_uring.h>)
#define LES_HAS_URING 1
#else
#define LES_HAS_URING 0
#endif

namespace les {

// Asks the system once for a small ring. kUnsupported with the reason: not built, forbidden (EPERM in containers),
// unknown to the kernel (ENOSYS), or no locked memory for it (ENOMEM, old kernels with a small RLIMIT_MEMLOCK).
Status probe_uring();
inline bool uring_available() { return probe_uring().is_ok(); }

struct UringOptions {
  int depth = 8;            // reads with the kernel at a time; a demand waits behind no more than these
  // Hands each read to a kernel thread at once instead of issuing it on the submitting thread. Costs a kernel thread
  // per read and frees the submitting thread of the pinning of pages; a retry after EAGAIN always goes this way.
  bool force_async = false;
  ReadHook hook;            // see pread_reader.h
};

Result<std::unique_ptr<AsyncReader>> make_uring_reader(const UringOptions& options, CompletionSink* sink);

}  // namespace les
