#include "io/faulty_reader.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace les {
namespace {

struct KindName {
  std::string_view name;
  FaultKind kind;
};
constexpr KindName kKindNames[] = {
    {"short", FaultKind::kShort}, {"eintr", FaultKind::kEintr},   {"eagain", FaultKind::kEagain},
    {"eio", FaultKind::kEio},     {"einval", FaultKind::kEinval}, {"reorder", FaultKind::kReorder},
    {"delay", FaultKind::kDelay},
};

std::string_view kind_name(FaultKind kind) {
  for (const KindName& known : kKindNames) {
    if (known.kind == kind) return known.name;
  }
  return "?";
}

// Digits only, at most nine; false otherwise.
bool parse_count(std::string_view text, int* out) {
  if (text.empty() || text.size() > 9) return false;
  *out = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    *out = *out * 10 + (c - '0');
  }
  return true;
}

// Overwrites all but the first kept_bytes, so that a reader that trusts them is found out.
void spoil(std::span<const iovec> parts, uint64_t kept_bytes) {
  for (const iovec& part : parts) {
    const uint64_t kept = std::min<uint64_t>(kept_bytes, part.iov_len);
    std::memset(static_cast<uint8_t*>(part.iov_base) + kept, 0xDB, part.iov_len - kept);
    kept_bytes -= kept;
  }
}

class FaultyReader final : public AsyncReader, private CompletionSink {
 public:
  FaultyReader(const FaultOptions& options, CompletionSink* sink) : options_(options), sink_(sink) {}
  ~FaultyReader() override { inner_.reset(); }

  Status start(const FaultyInnerFactory& make_inner) {
    LES_ASSIGN_OR_RETURN(inner_, make_inner(make_fault_hook(options_), this));
    return Status::ok();
  }

  void submit(const ReadRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      n_outstanding_++;
    }
    inner_->submit(request);
  }
  void promote(uint64_t tag) override { inner_->promote(tag); }
  void cancel(uint64_t tag) override { inner_->cancel(tag); }
  ReaderStats stats() const override { return inner_->stats(); }
  std::string name() const override {
    const std::string_view kind = kind_name(options_.kind);
    return format_text("%.*s on every %d. of ", static_cast<int>(kind.size()), kind.data(), options_.every_n) +
           inner_->name();
  }

 private:
  void on_read_complete(ReadCompletion completion) override {
    if (options_.kind == FaultKind::kDelay && is_nth()) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(options_.delay_ns));
    }
    std::vector<ReadCompletion> due;
    {
      const std::lock_guard lock(mutex_);
      const bool must_hold = options_.kind == FaultKind::kReorder && is_nth();
      if (must_hold) {
        held_.push_back(std::move(completion));
      } else {
        due.push_back(std::move(completion));
      }
      if (!must_hold || held_.size() == n_outstanding_) {
        // The last held is delivered first: n = 1 turns a burst round.
        while (!held_.empty()) {
          due.push_back(std::move(held_.back()));
          held_.pop_back();
        }
      }
      n_outstanding_ -= due.size();
    }
    for (ReadCompletion& one : due) sink_->on_read_complete(std::move(one));
  }

  bool is_nth() { return (n_seen_.fetch_add(1) + 1) % static_cast<uint64_t>(options_.every_n) == 0; }

  const FaultOptions options_;
  CompletionSink* const sink_;
  std::unique_ptr<AsyncReader> inner_;
  std::atomic<uint64_t> n_seen_{0};
  std::mutex mutex_;
  size_t n_outstanding_ = 0;  // submitted and not delivered, the held ones included
  std::vector<ReadCompletion> held_;
};

}  // namespace

Result<FaultOptions> parse_fault(std::string_view text) {
  const size_t comma = text.find(',');
  const std::string_view name = text.substr(0, comma);
  std::string_view rest = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  for (const KindName& known : kKindNames) {
    if (name != known.name) continue;
    FaultOptions options{.kind = known.kind};
    const size_t second = rest.find(',');
    int delay_us = 0;
    const bool has_delay = second != std::string_view::npos;
    if (has_delay && (known.kind != FaultKind::kDelay || !parse_count(rest.substr(second + 1), &delay_us))) break;
    if (!parse_count(rest.substr(0, second), &options.every_n) || options.every_n < 1) break;
    if (has_delay) options.delay_ns = int64_t{delay_us} * 1000;
    return options;
  }
  return make_error(
      Code::kInvalidArgument,
      "fault '%.*s' is unknown: expected short, eintr, eagain, eio, einval, reorder or delay, then ,N, and for "
      "delay also ,us",
      static_cast<int>(text.size()), text.data());
}

ReadHook make_fault_hook(const FaultOptions& options) {
  if (options.kind == FaultKind::kReorder || options.kind == FaultKind::kDelay) return {};
  // Shared: a std::function must be copyable, and every copy counts the same reads.
  const auto n_seen = std::make_shared<std::atomic<uint64_t>>(0);
  return [options, n_seen](std::span<const iovec> parts, int64_t result) -> int64_t {
    const uint64_t count = n_seen->fetch_add(1) + 1;
    if (count % static_cast<uint64_t>(options.every_n) != 0) return result;
    switch (options.kind) {
      case FaultKind::kShort: {
        if (result <= 1) return result;
        // From one byte to all but one, odd lengths included; the same sequence in every run.
        const uint64_t mixed = (count * 0x9E3779B97F4A7C15ull) >> 33;
        const int64_t n_read = count % 4 == 0 ? 1 : 1 + static_cast<int64_t>(mixed % static_cast<uint64_t>(result - 1));
        spoil(parts, static_cast<uint64_t>(n_read));
        return n_read;
      }
      case FaultKind::kEintr: spoil(parts, 0); return -EINTR;
      case FaultKind::kEagain: spoil(parts, 0); return -EAGAIN;
      case FaultKind::kEio: spoil(parts, 0); return -EIO;
      case FaultKind::kEinval: spoil(parts, 0); return -EINVAL;
      case FaultKind::kReorder:
      case FaultKind::kDelay: break;
    }
    return result;
  };
}

Result<std::unique_ptr<AsyncReader>> make_faulty_reader(const FaultOptions& options, CompletionSink* sink,
                                                        const FaultyInnerFactory& make_inner) {
  if (options.every_n < 1)
    return make_error(Code::kInvalidArgument, "fault on every %d. read: expected at least 1", options.every_n);
  auto reader = std::make_unique<FaultyReader>(options, sink);
  LES_RETURN_IF_ERROR(reader->start(make_inner));
  return std::unique_ptr<AsyncReader>(std::move(reader));
}

}  // namespace les
