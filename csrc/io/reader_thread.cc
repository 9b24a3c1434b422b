#include "io/reader_thread.h"

#ifdef __linux__
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace les {

#ifdef __linux__

namespace {

// sched_setattr's argument in its first version; libc headers do not agree on where it is.
struct SchedAttr {
  uint32_t size_bytes = sizeof(SchedAttr);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t slice_ns = 0;
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(SchedAttr) == 48);

constexpr uint64_t kSliceNs = 100'000;  // the shortest that the system grants

}  // namespace

void tune_reader_thread() {
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
#if defined(SYS_sched_setattr) && !defined(__ANDROID__)
  if (sched_getscheduler(0) != SCHED_OTHER) return;  // the user chose another policy
  SchedAttr attr;
  attr.nice = getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
  attr.slice_ns = kSliceNs;
  syscall(SYS_sched_setattr, 0, &attr, 0U);
#endif
}

#else

void tune_reader_thread() {}

#endif

}  // namespace les
