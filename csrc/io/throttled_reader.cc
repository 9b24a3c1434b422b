#include "io/throttled_reader.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "io/reader_thread.h"
#include "io/request_queue.h"

namespace les {
namespace {

constexpr double kBytesPerGb = 1e9;  // flash is sold in powers of ten
constexpr int kMaxLanes = 1024;

struct Preset {
  std::string_view name;
  FlashModel model;
};
constexpr Preset kPresets[] = {
    {"ufs4", {2.0 * kBytesPerGb, 2, 150'000}},
    {"nvme", {6.0 * kBytesPerGb, 32, 80'000}},
    {"emmc", {0.3 * kBytesPerGb, 1, 300'000}},
};

// The number before the next comma or the end; false when there is none or more than a number.
bool take_number(std::string_view* rest, double* out) {
  const size_t comma = rest->find(',');
  const std::string field(rest->substr(0, comma));
  *rest = comma == std::string_view::npos ? std::string_view() : rest->substr(comma + 1);
  char* stop = nullptr;
  *out = std::strtod(field.c_str(), &stop);
  return !field.empty() && *stop == '\0' && std::isfinite(*out);
}

class ThrottledReader final : public AsyncReader, private CompletionSink {
 public:
  ThrottledReader(const FlashModel& model, Clock* clock, CompletionSink* sink)
      : model_(model), clock_(clock), sink_(sink) {}

  ~ThrottledReader() override {
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        queue_.cancel_all();
        is_stopping_ = true;
      }
      work_.notify_all();
      thread_.join();
    }
    inner_.reset();
  }

  Status start(const ReaderFactory& make_inner) {
    LES_ASSIGN_OR_RETURN(inner_, make_inner(this));
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& failure) {
      return make_error(Code::kOutOfMemory, "simulated flash: cannot start a thread: %s", failure.what());
    }
    return Status::ok();
  }

  void submit(const ReadRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      const int64_t at_ns = clock_->now_ns();
      queue_.push(request, at_ns);
      fill_lanes(at_ns);
    }
    work_.notify_one();
  }

  void promote(uint64_t tag) override {
    const std::lock_guard lock(mutex_);
    // A request in service may still wait inside the inner reader.
    if (!queue_.promote(tag)) inner_->promote(tag);
  }

  void cancel(uint64_t tag) override {
    {
      const std::lock_guard lock(mutex_);
      if (!queue_.cancel(tag)) return;
    }
    work_.notify_one();
  }

  ReaderStats stats() const override {
    const ReaderStats inner = inner_->stats();
    const std::lock_guard lock(mutex_);
    ReaderStats stats = meter_.snapshot(clock_->now_ns());
    stats.device_bytes = inner.device_bytes;
    stats.n_direct = inner.n_direct;
    stats.n_buffered = inner.n_buffered;
    stats.n_retries = inner.n_retries;
    return stats;
  }

  std::string name() const override {
    return format_text("flash %.2f GB/s x%d %.0f us over %s", model_.bandwidth_bytes_per_s / kBytesPerGb, model_.lanes,
                       static_cast<double>(model_.latency_ns) / 1e3, inner_->name().c_str());
  }

 private:
  struct Service {
    ReadRequest request;
    Status status;
    int64_t start_ns = 0, due_ns = 0, inner_end_ns = 0;
    bool is_read = false;
  };

  // mutex_ held. Starts waiting requests at the later of their submission and free_ns.
  void fill_lanes(int64_t free_ns) {
    RequestQueue::Entry entry;
    while (in_service_.size() < static_cast<size_t>(model_.lanes) && queue_.pop(&entry)) {
      Service service{.request = entry.request};
      service.start_ns = std::max(entry.submit_ns, free_ns);
      service.due_ns =
          std::max(service.start_ns + model_.latency_ns, bus_free_ns_) + transfer_ns(model_, entry.request.size_bytes);
      bus_free_ns_ = service.due_ns;
      in_service_.push_back(std::move(service));
      meter_.begin(in_service_.back().start_ns);
      inner_->submit(entry.request);
    }
  }

  void on_read_complete(ReadCompletion completion) override {
    {
      const std::lock_guard lock(mutex_);
      for (Service& service : in_service_) {
        if (service.request.tag != completion.tag || service.is_read) continue;
        service.is_read = true;
        service.status = std::move(completion.status);
        service.inner_end_ns = clock_->now_ns();
        break;
      }
    }
    work_.notify_one();
  }

  void run() {
    tune_reader_thread();
    RequestQueue::Entry cancelled;
    std::unique_lock lock(mutex_);
    for (;;) {
      if (queue_.pop_cancelled(&cancelled)) {
        lock.unlock();
        sink_->on_read_complete({.tag = cancelled.request.tag, .status = Status(Code::kCancelled, "read cancelled")});
        lock.lock();
      } else if (in_service_.empty()) {
        if (is_stopping_) return;
        work_.wait(lock);
      } else if (const int64_t due_ns = in_service_.front().due_ns; due_ns > clock_->now_ns()) {
        // Nothing that comes meanwhile can be due earlier: the bus serves in order.
        lock.unlock();
        clock_->sleep_until_ns(due_ns);
        lock.lock();
      } else if (!in_service_.front().is_read) {
        work_.wait(lock);
      } else {
        finish_front(&lock);
      }
    }
  }

  void finish_front(std::unique_lock<std::mutex>* lock) {
    Service service = std::move(in_service_.front());
    in_service_.pop_front();
    const int64_t end_ns = std::max(service.due_ns, service.inner_end_ns);
    ReaderStats& stats = meter_.counters();
    stats.n_reads++;
    if (service.status.is_ok()) stats.read_bytes += service.request.size_bytes;
    // The next one first: with one lane, busy time has no gap.
    fill_lanes(end_ns);
    meter_.end(end_ns);
    lock->unlock();
    sink_->on_read_complete({service.request.tag, std::move(service.status), service.start_ns, end_ns});
    lock->lock();
  }

  const FlashModel model_;
  Clock* const clock_;
  CompletionSink* const sink_;
  std::unique_ptr<AsyncReader> inner_;
  mutable std::mutex mutex_;  // taken before the inner reader's
  std::condition_variable work_;
  RequestQueue queue_;
  std::deque<Service> in_service_;  // in order of service
  StatsMeter meter_;
  int64_t bus_free_ns_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace

Result<FlashModel> parse_flash(std::string_view text) {
  for (const Preset& preset : kPresets) {
    if (text == preset.name) return preset.model;
  }
  std::string_view rest = text;
  double gb_per_s, lanes, latency_us;
  if (take_number(&rest, &gb_per_s) && take_number(&rest, &lanes) && take_number(&rest, &latency_us) && rest.empty() &&
      std::count(text.begin(), text.end(), ',') == 2 && gb_per_s >= 1e-6 && gb_per_s <= 1e6 && lanes >= 1 &&
      lanes <= kMaxLanes && lanes == std::floor(lanes) && latency_us >= 0 && latency_us <= 1e9) {
    return FlashModel{gb_per_s * kBytesPerGb, static_cast<int>(lanes), std::llround(latency_us * 1e3)};
  }
  return make_error(Code::kInvalidArgument,
                    "flash '%.*s' is unknown: expected ufs4, nvme, emmc, or GB/s,lanes,us as in 2.0,2,150",
                    static_cast<int>(text.size()), text.data());
}

int64_t transfer_ns(const FlashModel& model, uint64_t size_bytes) {
  return std::llround(static_cast<double>(size_bytes) * 1e9 / model.bandwidth_bytes_per_s);
}

Result<std::unique_ptr<AsyncReader>> make_throttled_reader(const FlashModel& model, Clock* clock, CompletionSink* sink,
                                                           const ReaderFactory& make_inner) {
  if (model.lanes < 1 || !(model.bandwidth_bytes_per_s > 0) || model.latency_ns < 0) {
    return make_error(Code::kInvalidArgument, "flash of %g bytes/s, %d lanes, %lld ns: expected positive numbers",
                      model.bandwidth_bytes_per_s, model.lanes, static_cast<long long>(model.latency_ns));
  }
  auto reader = std::make_unique<ThrottledReader>(model, clock, sink);
  LES_RETURN_IF_ERROR(reader->start(make_inner));
  return std::unique_ptr<AsyncReader>(std::move(reader));
}

}  // namespace les
