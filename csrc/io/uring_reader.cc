#include "io/uring_reader.h"

#if LES_HAS_URING

#include <linux/io_uring.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "io/reader_thread.h"
#include "io/request_queue.h"

namespace les {
namespace {

constexpr int kMaxDepth = 256;
constexpr uint64_t kWakeName = UINT64_MAX;  // user_data of the poll on the wake-up descriptor

int ring_setup(unsigned n_entries, io_uring_params* params) {
  return static_cast<int>(syscall(__NR_io_uring_setup, n_entries, params));
}

// The two rings shared with the kernel. One thread uses it.
class Ring {
 public:
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (sqes_ != nullptr) munmap(sqes_, sqes_bytes_);
    if (rings_ != nullptr) munmap(rings_, rings_bytes_);
    if (fd_ >= 0) close(fd_);
  }

  // 0 or an errno.
  int open(unsigned n_entries) {
    io_uring_params params = {};
    fd_ = ring_setup(n_entries, &params);
    if (fd_ < 0) return errno;
    // 5.5: both rings in one mapping, no lost completions. Older kernels have the calls but not enough behind them.
    if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0 || (params.features & IORING_FEAT_NODROP) == 0) return ENOSYS;
    rings_bytes_ = std::max<size_t>(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                                    params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    void* rings =
        mmap(nullptr, rings_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, IORING_OFF_SQ_RING);
    if (rings == MAP_FAILED) return errno;
    rings_ = static_cast<uint8_t*>(rings);
    sqes_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
    void* sqes = mmap(nullptr, sqes_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, IORING_OFF_SQES);
    if (sqes == MAP_FAILED) return errno;
    sqes_ = static_cast<io_uring_sqe*>(sqes);
    sq_tail_ = at<unsigned>(params.sq_off.tail);
    sq_mask_ = *at<unsigned>(params.sq_off.ring_mask);
    sq_array_ = at<unsigned>(params.sq_off.array);
    cq_head_ = at<unsigned>(params.cq_off.head);
    cq_tail_ = at<unsigned>(params.cq_off.tail);
    cq_mask_ = *at<unsigned>(params.cq_off.ring_mask);
    cqes_ = at<io_uring_cqe>(params.cq_off.cqes);
    return 0;
  }

  // The caller keeps the number of unsubmitted entries within what open() was given.
  io_uring_sqe* next_sqe() {
    const unsigned tail = *sq_tail_;
    const unsigned idx = tail & sq_mask_;
    std::memset(&sqes_[idx], 0, sizeof(io_uring_sqe));
    sq_array_[idx] = idx;
    n_unsubmitted_++;
    return &sqes_[idx];
  }
  // After next_sqe() was filled in.
  void push_sqe() { __atomic_store_n(sq_tail_, *sq_tail_ + 1, __ATOMIC_RELEASE); }

  // Submits what is pushed and waits for one completion. 0 or an errno.
  int enter() {
    const long n = syscall(__NR_io_uring_enter, fd_, n_unsubmitted_, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
    if (n < 0) return errno;
    n_unsubmitted_ -= static_cast<unsigned>(n);
    return 0;
  }

  bool pop_cqe(io_uring_cqe* out) {
    const unsigned head = *cq_head_;
    if (head == __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE)) return false;
    *out = cqes_[head & cq_mask_];
    __atomic_store_n(cq_head_, head + 1, __ATOMIC_RELEASE);
    return true;
  }

 private:
  template <typename T>
  T* at(unsigned offset) {
    return reinterpret_cast<T*>(rings_ + offset);
  }

  int fd_ = -1;
  uint8_t* rings_ = nullptr;
  size_t rings_bytes_ = 0;
  io_uring_sqe* sqes_ = nullptr;
  size_t sqes_bytes_ = 0;
  unsigned *sq_tail_ = nullptr, *sq_array_ = nullptr, *cq_head_ = nullptr, *cq_tail_ = nullptr;
  unsigned sq_mask_ = 0, cq_mask_ = 0;
  io_uring_cqe* cqes_ = nullptr;
  unsigned n_unsubmitted_ = 0;
};

class UringReader final : public AsyncReader {
 public:
  UringReader(const UringOptions& options, CompletionSink* sink)
      : sink_(sink),
        hook_(options.hook),
        depth_(std::clamp(options.depth, 1, kMaxDepth)),
        force_async_(options.force_async) {}

  ~UringReader() override {
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        queue_.cancel_all();
        is_stopping_ = true;
        wake_locked();
      }
      thread_.join();
    }
    if (wake_fd_ >= 0) close(wake_fd_);
  }

  Status start() {
    // Old kernels charge the rings to the locked-memory limit: fewer entries may fit where many do not.
    int error = ENOMEM;
    for (; depth_ >= 1 && error == ENOMEM; depth_ /= 2) {
      auto ring = std::make_unique<Ring>();
      error = ring->open(std::bit_ceil(static_cast<unsigned>(depth_) + 1));
      if (error == 0) {
        ring_ = std::move(ring);
        break;
      }
    }
    if (error != 0) {
      return make_error(Code::kUnsupported, "io_uring: cannot make a ring: %s",
                        std::generic_category().message(error).c_str());
    }
    wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd_ < 0)
      return make_error(Code::kIo, "io_uring: eventfd: %s", std::generic_category().message(errno).c_str());
    bounce_.emplace(depth_);
    slots_.resize(static_cast<size_t>(depth_));
    for (int i = depth_ - 1; i >= 0; i--) free_slots_.push_back(i);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& failure) {
      return make_error(Code::kOutOfMemory, "io_uring: cannot start a thread: %s", failure.what());
    }
    return Status::ok();
  }

  void submit(const ReadRequest& request) override {
    const std::lock_guard lock(mutex_);
    queue_.push(request);
    if (!free_slots_.empty()) wake_locked();
  }
  void promote(uint64_t tag) override {
    const std::lock_guard lock(mutex_);
    queue_.promote(tag);
  }
  void cancel(uint64_t tag) override {
    const std::lock_guard lock(mutex_);
    if (queue_.cancel(tag)) wake_locked();
  }
  ReaderStats stats() const override {
    const std::lock_guard lock(mutex_);
    return meter_.snapshot(now_ns());
  }
  std::string name() const override {
    const ReaderStats seen = stats();
    const char* mode = seen.n_direct != 0 ? (seen.n_buffered != 0 ? " direct and buffered" : " direct")
                                          : (seen.n_buffered != 0 ? " buffered" : "");
    return format_text("io_uring x%d%s", depth_, mode);
  }

 private:
  struct Slot {
    Transfer transfer;
    int64_t start_ns = 0;
  };

  void wake_locked() {
    if (!is_asleep_) return;
    is_asleep_ = false;
    const uint64_t one = 1;
    // Cannot fail: the counter is far from its end, and the descriptor is ours.
    [[maybe_unused]] const ssize_t n = write(wake_fd_, &one, sizeof(one));
  }

  void run() {
    tune_reader_thread();
    bool is_wake_armed = false;
    std::vector<int> started;
    std::vector<uint64_t> cancelled;
    started.reserve(slots_.size());
    for (;;) {
      bool must_sleep;
      {
        const std::lock_guard lock(mutex_);
        take_work(&started, &cancelled);
        must_sleep = started.empty() && cancelled.empty();
        if (must_sleep && is_stopping_ && free_slots_.size() == slots_.size()) return;
        is_asleep_ = must_sleep;
      }
      for (const uint64_t tag : cancelled) {
        sink_->on_read_complete({.tag = tag, .status = Status(Code::kCancelled, "read cancelled")});
      }
      for (const int slot_idx : started) begin(slot_idx);
      // Pushed entries are submitted by the enter() of the next round, which finds no new work.
      if (!must_sleep) continue;
      if (!is_wake_armed) {
        io_uring_sqe* sqe = ring_->next_sqe();
        sqe->opcode = IORING_OP_POLL_ADD;
        sqe->fd = wake_fd_;
        sqe->poll_events = POLLIN;
        sqe->user_data = kWakeName;
        ring_->push_sqe();
        is_wake_armed = true;
      }
      // Errors are EINTR, or EAGAIN and EBUSY while the kernel is short of memory: reap and try again.
      if (ring_->enter() != 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
      io_uring_cqe cqe;
      while (ring_->pop_cqe(&cqe)) {
        if (cqe.user_data == kWakeName) {
          uint64_t count;
          [[maybe_unused]] const ssize_t n = read(wake_fd_, &count, sizeof(count));
          is_wake_armed = false;
        } else {
          on_result(static_cast<int>(cqe.user_data), cqe.res);
        }
      }
    }
  }

  void take_work(std::vector<int>* started, std::vector<uint64_t>* cancelled) {
    started->clear();
    cancelled->clear();
    RequestQueue::Entry entry;
    while (queue_.pop_cancelled(&entry)) cancelled->push_back(entry.request.tag);
    while (!free_slots_.empty() && queue_.pop(&entry)) {
      const int slot_idx = free_slots_.back();
      free_slots_.pop_back();
      Slot& slot = slots_[static_cast<size_t>(slot_idx)];
      slot.start_ns = now_ns();
      meter_.begin(slot.start_ns);
      slot.transfer.start(entry.request, bounce_->of(slot_idx));
      started->push_back(slot_idx);
    }
  }

  void begin(int slot_idx) {
    if (slots_[static_cast<size_t>(slot_idx)].transfer.is_done()) {
      finish(slot_idx);
    } else {
      issue(slot_idx, force_async_);
    }
  }

  void issue(int slot_idx, bool is_async) {
    const TransferStep& step = slots_[static_cast<size_t>(slot_idx)].transfer.step();
    io_uring_sqe* sqe = ring_->next_sqe();
    sqe->opcode = IORING_OP_READV;
    sqe->flags = is_async ? IOSQE_ASYNC : 0;
    sqe->fd = step.fd;
    sqe->off = step.offset_bytes;
    sqe->addr = reinterpret_cast<uintptr_t>(step.parts);
    sqe->len = static_cast<unsigned>(step.n_parts);
    sqe->user_data = static_cast<uint64_t>(slot_idx);
    ring_->push_sqe();
  }

  void on_result(int slot_idx, int64_t result) {
    Transfer& transfer = slots_[static_cast<size_t>(slot_idx)].transfer;
    if (hook_) result = hook_({transfer.step().parts, static_cast<size_t>(transfer.step().n_parts)}, result);
    transfer.advance(result);
    if (transfer.is_done()) {
      finish(slot_idx);
    } else {
      issue(slot_idx, force_async_ || result == -EAGAIN);
    }
  }

  void finish(int slot_idx) {
    const Slot& slot = slots_[static_cast<size_t>(slot_idx)];
    ReadCompletion completion{slot.transfer.request().tag, slot.transfer.status(), slot.start_ns, now_ns()};
    {
      const std::lock_guard lock(mutex_);
      count(slot.transfer);
      meter_.end(completion.end_ns);
      free_slots_.push_back(slot_idx);
    }
    sink_->on_read_complete(std::move(completion));
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
  int depth_;
  const bool force_async_;
  std::unique_ptr<Ring> ring_;
  int wake_fd_ = -1;
  std::optional<BouncePool> bounce_;  // made once the depth is known
  std::vector<Slot> slots_;      // the thread's own
  mutable std::mutex mutex_;     // guards what follows
  std::vector<int> free_slots_;
  RequestQueue queue_;
  StatsMeter meter_;
  bool is_asleep_ = false;
  bool is_stopping_ = false;
  std::thread thread_;
};

Status probe_now() {
  Ring ring;
  const int error = ring.open(2);
  if (error == 0) return Status::ok();
  const char* hint = error == EPERM    ? " (forbidden here; containers often do)"
                     : error == ENOMEM ? " (raise the limit of locked memory, ulimit -l)"
                     : error == ENOSYS ? " (needs Linux 5.5)"
                                       : "";
  return make_error(Code::kUnsupported, "io_uring is not available: %s%s",
                    std::generic_category().message(error).c_str(), hint);
}

}  // namespace

Status probe_uring() {
  static const Status status = probe_now();
  return status;
}

Result<std::unique_ptr<AsyncReader>> make_uring_reader(const UringOptions& options, CompletionSink* sink) {
  LES_RETURN_IF_ERROR(probe_uring());
  auto reader = std::make_unique<UringReader>(options, sink);
  LES_RETURN_IF_ERROR(reader->start());
  return std::unique_ptr<AsyncReader>(std::move(reader));
}

}  // namespace les

#else

namespace les {

Status probe_uring() { return make_error(Code::kUnsupported, "io_uring is not available: not built for this system"); }

Result<std::unique_ptr<AsyncReader>> make_uring_reader(const UringOptions&, CompletionSink*) { return probe_uring(); }

}  // namespace les

#endif
