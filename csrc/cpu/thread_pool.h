// A fixed set of compute threads that run one function together.
//
// 1. The caller takes part: a pool of n threads owns n - 1 workers.
// 2. Work is split into index ranges; which thread runs a range is not fixed, so a range's result must not depend on
// it.
// 3. A worker that wakes late misses the job; nobody waits for it.
// 4. Idle workers spin for a few microseconds, then sleep; an idle pool uses no processor time.
// Thread-safety: one caller at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace les {

class ThreadPool {
 public:
  // fn(begin, end, thread_idx) with thread_idx in [0, n_threads).
  using RangeFn = std::function<void(int64_t begin, int64_t end, int thread_idx)>;

  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs fn over [0, n) in ranges of about `grain` indices (multiples of it, but for the last); returns when all are
  // done.
  void parallel_for(int64_t n, int64_t grain, const RangeFn& fn);

 private:
  void worker_loop(int thread_idx);
  void take_ranges(int thread_idx);

  std::vector<std::thread> workers_;
  const RangeFn* fn_ = nullptr;
  int64_t n_ = 0, step_ = 1;
  std::atomic<int64_t> next_{0};
  std::atomic<uint32_t> epoch_{0};  // raised to wake workers; written by the caller only
  std::atomic<uint32_t> gate_{0};   // kOpen while a job may be joined, plus the number of workers inside it
  std::atomic<bool> is_stopping_{false};
};

// Threads that compute best here: performance cores within the affinity mask and the container's quota.
int default_threads();

}  // namespace les
