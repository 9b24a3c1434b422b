#include "base/clock.h"

#include <chrono>
#include <thread>

namespace les {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

namespace {

class SystemClock final : public Clock {
 public:
  int64_t now_ns() override { return les::now_ns(); }
  void sleep_until_ns(int64_t deadline_ns) override {
    const int64_t left_ns = deadline_ns - les::now_ns();
    if (left_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left_ns));
  }
};

}  // namespace

Clock& system_clock() {
  static SystemClock clock;
  return clock;
}

}  // namespace les
