// Monotonic time. Components that wait take a Clock so that tests can own the time.
// Thread-safety: every function and implementation may be called from any thread.
#pragma once

#include <cstdint>

namespace les {

// Nanoseconds of a monotonic clock.
int64_t now_ns();

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() = 0;
  virtual void sleep_until_ns(int64_t deadline_ns) = 0;
};

// The machine's clock; never destroyed.
Clock& system_clock();

}  // namespace les
