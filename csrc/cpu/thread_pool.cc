#include "cpu/thread_pool.h"

#include <algorithm>

#include "base/clock.h"

namespace les {

namespace {

// Longer than the gap between two kernels of a layer, far shorter than a read.
constexpr int64_t kSpinNs = 20'000;
constexpr uint32_t kOpen = 1u << 31;

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins while *value == old, then sleeps until it changes.
template <typename T>
void wait_while(const std::atomic<T>& value, T old) {
  const int64_t deadline_ns = now_ns() + kSpinNs;
  while (value.load(std::memory_order_acquire) == old) {
    for (int i = 0; i < 32; ++i) relax();
    if (now_ns() >= deadline_ns) {
      value.wait(old, std::memory_order_acquire);
      return;
    }
  }
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  for (int i = 1; i < n_threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
}

ThreadPool::~ThreadPool() {
  is_stopping_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_ranges(int thread_idx) {
  for (;;) {
    const int64_t begin = next_.fetch_add(step_, std::memory_order_relaxed);
    if (begin >= n_) return;
    (*fn_)(begin, std::min(n_, begin + step_), thread_idx);
  }
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, const RangeFn& fn) {
  if (n <= 0) return;
  const int64_t n_grains = (n + grain - 1) / grain;
  if (workers_.empty() || n_grains == 1) {
    fn(0, n, 0);
    return;
  }
  // A few ranges a thread: enough to even out a core that the system takes away, few enough to stream memory.
  const int64_t n_ranges = std::min<int64_t>(n_grains, n_threads() * 4);
  step_ = (n_grains + n_ranges - 1) / n_ranges * grain;
  n_ = n;
  fn_ = &fn;
  next_.store(0, std::memory_order_relaxed);
  gate_.store(kOpen, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  take_ranges(0);
  gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int spins = 0; gate_.load(std::memory_order_acquire) != 0; ++spins) {
    relax();
    if (spins > 10'000) std::this_thread::yield();  // a worker inside lost its core
  }
}

void ThreadPool::worker_loop(int thread_idx) {
  uint32_t seen = 0;
  for (;;) {
    wait_while(epoch_, seen);
    seen = epoch_.load(std::memory_order_acquire);
    if (is_stopping_.load(std::memory_order_relaxed)) return;
    uint32_t gate = gate_.load(std::memory_order_acquire);
    while ((gate & kOpen) != 0) {
      if (!gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) continue;
      take_ranges(thread_idx);
      gate_.fetch_sub(1, std::memory_order_acq_rel);
      break;
    }
  }
}

}  // namespace les
