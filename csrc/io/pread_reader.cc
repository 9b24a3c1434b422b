#include "io/pread_reader.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "io/reader_thread.h"
#include "io/request_queue.h"

namespace les {
namespace {

class PreadReader final : public AsyncReader {
 public:
  PreadReader(int lanes, CompletionSink* sink, ReadHook hook) : sink_(sink), hook_(std::move(hook)), bounce_(lanes) {}

  ~PreadReader() override {
    {
      const std::lock_guard lock(mutex_);
      queue_.cancel_all();
      is_stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // How many lanes started.
  int start(int lanes) {
    threads_.reserve(static_cast<size_t>(lanes));
    try {
      for (int i = 0; i < lanes; i++) threads_.emplace_back([this, i] { run_lane(bounce_.of(i)); });
    } catch (const std::system_error&) {
      // The system's limit of threads: the lanes that started do the work.
    }
    return static_cast<int>(threads_.size());
  }

  void submit(const ReadRequest& request) override {
    bool must_wake;
    {
      const std::lock_guard lock(mutex_);
      queue_.push(request);
      must_wake = n_idle_ > 0;
    }
    if (must_wake) work_.notify_one();
  }

  void promote(uint64_t tag) override {
    const std::lock_guard lock(mutex_);
    queue_.promote(tag);
  }

  void cancel(uint64_t tag) override {
    bool must_wake;
    {
      const std::lock_guard lock(mutex_);
      must_wake = queue_.cancel(tag) && n_idle_ > 0;
    }
    if (must_wake) work_.notify_one();
  }

  ReaderStats stats() const override {
    const std::lock_guard lock(mutex_);
    return meter_.snapshot(now_ns());
  }

  std::string name() const override {
    const ReaderStats seen = stats();
    const char* mode = seen.n_direct != 0 ? (seen.n_buffered != 0 ? " direct and buffered" : " direct")
                                          : (seen.n_buffered != 0 ? " buffered" : "");
    return format_text("pread x%d%s", static_cast<int>(threads_.size()), mode);
  }

 private:
  void run_lane(std::span<uint8_t> bounce) {
    tune_reader_thread();
    Transfer transfer;
    RequestQueue::Entry entry;
    std::unique_lock lock(mutex_);
    for (;;) {
      if (queue_.pop_cancelled(&entry)) {
        lock.unlock();
        sink_->on_read_complete({.tag = entry.request.tag, .status = Status(Code::kCancelled, "read cancelled")});
        lock.lock();
      } else if (queue_.pop(&entry)) {
        const int64_t start_ns = now_ns();
        meter_.begin(start_ns);
        lock.unlock();
        transfer.start(entry.request, bounce);
        while (!transfer.is_done()) transfer.advance(read_once(transfer.step()));
        const int64_t end_ns = now_ns();
        lock.lock();
        count(transfer);
        meter_.end(end_ns);
        lock.unlock();
        sink_->on_read_complete({entry.request.tag, transfer.status(), start_ns, end_ns});
        lock.lock();
      } else if (is_stopping_) {
        return;
      } else {
        n_idle_++;
        work_.wait(lock);
        n_idle_--;
      }
    }
  }

  int64_t read_once(const TransferStep& step) {
    int64_t result = system_read(step.fd, step.parts, step.n_parts, step.offset_bytes);
    if (result < 0) result = -errno;
    if (hook_) result = hook_({step.parts, static_cast<size_t>(step.n_parts)}, result);
    if (result == -EAGAIN) std::this_thread::sleep_for(std::chrono::microseconds(50));
    return result;
  }

  void count(const Transfer& transfer) {
    ReaderStats& stats = meter_.counters();
    stats.n_reads++;
    if (transfer.status().is_ok()) stats.read_bytes += transfer.request().size_bytes;
    stats.device_bytes += transfer.device_bytes();
    (transfer.is_all_direct() ? stats.n_direct : stats.n_buffered)++;
    stats.n_retries += transfer.n_retries();
  }

  CompletionSink* const sink_;
  const ReadHook hook_;
  BouncePool bounce_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  RequestQueue queue_;
  StatsMeter meter_;
  int n_idle_ = 0;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<AsyncReader> make_pread_reader(int lanes, CompletionSink* sink, ReadHook hook) {
  lanes = std::max(lanes, 1);
  auto reader = std::make_unique<PreadReader>(lanes, sink, std::move(hook));
  if (reader->start(lanes) == 0) return nullptr;
  return reader;
}

}  // namespace les
