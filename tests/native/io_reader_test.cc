#include <doctest/doctest.h>
#include <sys/resource.h>
#ifdef __linux__
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <random>
#include <thread>
#include <utility>

#include "io/make_reader.h"
#include "io/pread_reader.h"
#include "io/uring_reader.h"
#include "io_test_util.h"

namespace les {
namespace {

constexpr uint64_t kFileBytes = 6 * kMiB + 321;

// The kinds that work here; a machine without io_uring says so.
std::vector<std::string> kinds() {
  if (uring_available()) return {"pread", "uring"};
  MESSAGE("io_uring is left out: " << probe_uring().message());
  return {"pread"};
}

std::unique_ptr<AsyncReader> make(const ReaderOptions& options, CompletionSink* sink) {
  Result<std::unique_ptr<AsyncReader>> reader = make_reader(options, sink);
  REQUIRE_MESSAGE(reader.is_ok(), reader.status().message());
  return std::move(*reader);
}

std::unique_ptr<AsyncReader> make_hooked(const std::string& kind, CompletionSink* sink, ReadHook hook) {
  if (kind == "pread") return make_pread_reader(1, sink, std::move(hook));
  Result<std::unique_ptr<AsyncReader>> reader = make_uring_reader({.depth = 1, .hook = std::move(hook)}, sink);
  REQUIRE_MESSAGE(reader.is_ok(), reader.status().message());
  return std::move(*reader);
}

// Holds every answer back until opened.
class Gate {
 public:
  ReadHook hook() {
    return [this](std::span<const iovec>, int64_t result) {
      n_arrived_++;
      while (!is_open_) std::this_thread::sleep_for(std::chrono::microseconds(200));
      return result;
    };
  }
  void wait_for_arrival() const {
    while (n_arrived_ == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  void open() { is_open_ = true; }

 private:
  std::atomic<int> n_arrived_{0};
  std::atomic<bool> is_open_{false};
};

struct Fixture {
  explicit Fixture(const FileOptions& options = {}) : temp(kFileBytes), file(open_file(temp.path(), options)) {
    REQUIRE_MESSAGE(file.is_ok(), file.status().message());
    Result<Buffer> made = make_buffer(8 * kMiB);
    REQUIRE(made.is_ok());
    memory = std::move(*made);
  }
  ReadRequest request(uint64_t tag, uint64_t offset_bytes, uint64_t size_bytes, uint64_t dst_bytes,
                      ReadClass read_class = ReadClass::kDemand) {
    return {file->get(), offset_bytes, size_bytes, memory.data() + dst_bytes, tag, read_class};
  }
  TempFile temp;
  Result<std::unique_ptr<File>> file;
  Buffer memory;
};

TEST_CASE("what cannot be made is an error, never something else in silence") {
  CollectingSink sink;
  CHECK(make_reader({.kind = "mmap"}, &sink).status().message() ==
        "reader 'mmap' is unknown: expected auto, pread or uring");
  CHECK(make_reader({.lanes = 257}, &sink).status().code() == Code::kInvalidArgument);
  CHECK(make_reader({.lanes = -1}, &sink).status().code() == Code::kInvalidArgument);
  const Result<std::unique_ptr<AsyncReader>> uring = make_reader({.kind = "uring"}, &sink);
  CHECK(uring.is_ok() == uring_available());
  if (!uring.is_ok()) CHECK(uring.status().code() == Code::kUnsupported);
  CHECK(plan_reader_bytes({.lanes = 3}) == 3 * kBounceBytes);
}

TEST_CASE("reads of every shape arrive whole, and are counted") {
  Fixture fixture;
  for (const std::string& kind : kinds()) {
    for (const int lanes : {1, 4}) {
      CAPTURE(kind);
      CAPTURE(lanes);
      CollectingSink sink;
      const auto reader = make({.kind = kind, .lanes = lanes}, &sink);
      std::memset(fixture.memory.data(), 0, fixture.memory.size_bytes());
      reader->submit(fixture.request(1, 0, 2 * kMiB, 0));
      reader->submit(fixture.request(2, 2 * kMiB + 5, kMiB + 7, 2 * kMiB + 64));
      reader->submit(fixture.request(3, kFileBytes - 1000, 1000, 4 * kMiB));
      reader->submit(fixture.request(4, 77, 0, 5 * kMiB));
      REQUIRE(sink.wait_for(4));
      for (uint64_t tag = 1; tag <= 4; tag++) {
        const ReadCompletion done = sink.get(tag);
        CHECK_MESSAGE(done.status.is_ok(), done.status.message());
        CHECK(done.end_ns >= done.start_ns);
      }
      CHECK(first_wrong(fixture.memory.data(), 0, 2 * kMiB) == -1);
      CHECK(first_wrong(fixture.memory.data() + 2 * kMiB + 64, 2 * kMiB + 5, kMiB + 7) == -1);
      CHECK(first_wrong(fixture.memory.data() + 4 * kMiB, kFileBytes - 1000, 1000) == -1);
      const ReaderStats stats = reader->stats();
      CHECK(stats.n_reads == 4);
      CHECK(stats.read_bytes == 3 * kMiB + 7 + 1000);
      CHECK(stats.device_bytes >= stats.read_bytes);
      CHECK(stats.n_retries == 0);
      CHECK(stats.busy_ns > 0);
      if ((*fixture.file)->is_direct()) {
        CHECK(stats.n_direct == 4);
        CHECK(reader->name() == (kind == "pread" ? "pread x" : "io_uring x") + std::to_string(lanes) + " direct");
      }
    }
  }
}

TEST_CASE("the same bytes come through the page cache") {
  Fixture fixture({.try_direct = false});
  for (const std::string& kind : kinds()) {
    CollectingSink sink;
    const auto reader = make({.kind = kind, .lanes = 2}, &sink);
    std::memset(fixture.memory.data(), 0, fixture.memory.size_bytes());
    reader->submit(fixture.request(1, 123, 3 * kMiB, 64));
    REQUIRE(sink.wait_for(1));
    CHECK(sink.get(1).status.is_ok());
    CHECK(first_wrong(fixture.memory.data() + 64, 123, 3 * kMiB) == -1);
    CHECK(reader->stats().n_buffered == 1);
    CHECK(reader->stats().n_direct == 0);
  }
}

TEST_CASE("a read past the end fails by name and the reader goes on") {
  Fixture fixture;
  for (const std::string& kind : kinds()) {
    CollectingSink sink;
    const auto reader = make({.kind = kind}, &sink);
    reader->submit(fixture.request(1, kFileBytes - 100, 4096, 0));
    reader->submit({});
    reader->submit(fixture.request(2, 0, 4096, 16384));
    REQUIRE(sink.wait_for(3));
    CHECK(sink.get(1).status.message() == fixture.temp.path() + ": read at offset " + std::to_string(kFileBytes - 100) +
                                              " reached the end of the file: wanted 4096 bytes, got 100");
    CHECK(sink.get(0).status.code() == Code::kInvalidArgument);
    CHECK(sink.get(2).status.is_ok());
  }
}

TEST_CASE("demand starts before waiting prefetches, a promoted one counts as demand, a cancelled one never starts") {
  Fixture fixture;
  for (const std::string& kind : kinds()) {
    CAPTURE(kind);
    CollectingSink sink;
    Gate gate;
    const auto reader = make_hooked(kind, &sink, gate.hook());
    reader->submit(fixture.request(1, 0, 4096, 0, ReadClass::kPrefetch));
    gate.wait_for_arrival();
    std::memset(fixture.memory.data() + 4096, 0xEE, 4096);
    reader->submit(fixture.request(2, 4096, 4096, 4096, ReadClass::kPrefetch));
    reader->submit(fixture.request(3, 8192, 4096, 8192, ReadClass::kPrefetch));
    reader->submit(fixture.request(4, 12288, 4096, 12288, ReadClass::kPrefetch));
    reader->submit(fixture.request(5, 16384, 4096, 16384, ReadClass::kDemand));
    reader->promote(4);
    reader->promote(1);   // under way: ignored
    reader->promote(99);  // unknown: ignored
    reader->cancel(2);
    reader->cancel(1);    // under way: too late
    reader->cancel(99);
    gate.open();
    REQUIRE(sink.wait_for(5));
    std::vector<uint64_t> order = sink.order();
    CHECK(sink.get(2).status.code() == Code::kCancelled);
    CHECK(fixture.memory.data()[4096] == 0xEE);
    order.erase(std::find(order.begin(), order.end(), 2u));
    CHECK(order == std::vector<uint64_t>{1, 5, 4, 3});
  }
}

TEST_CASE("a destroyed reader has completed everything, and what had not started as cancelled") {
  Fixture fixture;
  for (const std::string& kind : kinds()) {
    CAPTURE(kind);
    CollectingSink sink;
    Gate gate;
    auto reader = make_hooked(kind, &sink, gate.hook());
    for (uint64_t tag = 1; tag <= 20; tag++) reader->submit(fixture.request(tag, tag * 4096, 4096, tag * 4096));
    gate.wait_for_arrival();
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      gate.open();
    });
    reader.reset();
    CHECK(sink.count() == 20);
    CHECK(sink.n_twice() == 0);
    CHECK(sink.get(1).status.is_ok());
    for (uint64_t tag = 2; tag <= 20; tag++) CHECK(sink.get(tag).status.code() == Code::kCancelled);
    opener.join();
  }
}

TEST_CASE("readers come and go in numbers, idle or busy") {
  Fixture fixture;
  for (const std::string& kind : kinds()) {
    for (int round = 0; round < 100; round++) {
      CollectingSink sink;
      const auto reader = make({.kind = kind, .lanes = 2}, &sink);
      if (round % 2 != 0) reader->submit(fixture.request(1, 4096, 100'000, 0));
    }
  }
}

// Random reads, promoted and cancelled at random: each completes once, and what succeeded is right.
void stress(const ReaderOptions& options, int n_requests, int64_t n_failures_allowed) {
  Fixture fixture;
  CollectingSink sink;
  auto reader = make(options, &sink);
  std::mt19937_64 random(42);
  struct Asked {
    uint64_t offset, size, dst;
  };
  std::vector<Asked> asked;
  constexpr uint64_t kLaneBytes = 256 * kKiB;
  uint64_t n_done_before = 0;
  int64_t n_failed = 0;
  while (static_cast<int>(asked.size()) < n_requests) {
    // 16 at a time, each into a part of the memory of its own.
    const uint64_t first = asked.size();
    for (uint64_t i = 0; i < 16; i++) {
      const uint64_t size = 1 + random() % (kLaneBytes - 8192);
      const uint64_t offset = random() % (kFileBytes - size);
      const uint64_t shift = i % 3 == 0 ? offset % 4096 : i % 3 == 1 ? 64 : 0;
      asked.push_back({i % 5 == 4 ? align_down(offset, 4096) : offset, size, i * kLaneBytes + shift});
      const ReadClass read_class = random() % 2 == 0 ? ReadClass::kDemand : ReadClass::kPrefetch;
      reader->submit(fixture.request(first + i, asked.back().offset, size, asked.back().dst, read_class));
      if (random() % 4 == 0) reader->promote(first + random() % (i + 1));
      if (random() % 4 == 0) reader->cancel(first + random() % (i + 1));
    }
    REQUIRE(sink.wait_for(asked.size()));
    for (uint64_t tag = n_done_before; tag < asked.size(); tag++) {
      const ReadCompletion done = sink.get(tag);
      if (done.status.is_ok()) {
        CHECK(first_wrong(fixture.memory.data() + asked[tag].dst, asked[tag].offset, asked[tag].size) == -1);
      } else if (done.status.code() != Code::kCancelled) {
        n_failed++;
        CHECK(done.status.code() == Code::kIo);
        CHECK(done.status.message().find(fixture.temp.path()) == 0);
      }
    }
    n_done_before = asked.size();
  }
  reader.reset();
  CHECK(sink.count() == asked.size());
  CHECK(sink.n_twice() == 0);
  if (n_failures_allowed == 0) CHECK(n_failed == 0);
  if (n_failures_allowed > 0) CHECK(n_failed > 0);
}

TEST_CASE("random reads, promotions and cancellations") {
  for (const std::string& kind : kinds()) {
    for (const int lanes : {1, 2, 8}) {
      CAPTURE(kind);
      CAPTURE(lanes);
      stress({.kind = kind, .lanes = lanes}, 320, 0);
    }
  }
}

TEST_CASE("every fault is retried or reported") {
  for (const std::string& kind : kinds()) {
    for (const char* fault :
         {"short,1", "short,3", "eintr,2", "eagain,3", "einval,5", "reorder,1", "reorder,3", "delay,7,300"}) {
      CAPTURE(kind);
      CAPTURE(fault);
      ReaderOptions options{.kind = kind, .lanes = 3};
      options.fault = *parse_fault(fault);
      // EINVAL is retried once, through the page cache; there it is an error like any other.
      stress(options, 96, std::string_view(fault) == "einval,5" ? -1 : 0);
    }
    CAPTURE(kind);
    ReaderOptions options{.kind = kind, .lanes = 3};
    options.fault = *parse_fault("eio,4");
    stress(options, 96, 1);
    options.flash = FlashModel{20e9, 4, 1000};
    stress(options, 96, 1);
  }
}

TEST_CASE("retries are counted, and an error that lasts is given up") {
  Fixture fixture;
  for (const std::string& kind : kinds()) {
    CAPTURE(kind);
    CollectingSink sink;
    ReaderOptions options{.kind = kind, .lanes = 1};
    options.fault = *parse_fault("eintr,2");
    const auto retrying = make(options, &sink);
    for (uint64_t tag = 0; tag < 10; tag++) retrying->submit(fixture.request(tag, tag * 4096, 4096, tag * 4096));
    REQUIRE(sink.wait_for(10));
    CHECK(retrying->stats().n_retries >= 9);
    CHECK(retrying->name().find("eintr on every 2. of ") == 0);
    CollectingSink other;
    options.fault = *parse_fault("eintr,1");
    const auto hopeless = make(options, &other);
    hopeless->submit(fixture.request(1, 0, 4096, 0));
    REQUIRE(other.wait_for(1));
    CHECK(other.get(1).status.message().find("gave up: Interrupted system call") != std::string::npos);
  }
}

TEST_CASE("reordered completions come in another order") {
  Fixture fixture;
  CollectingSink sink;
  ReaderOptions options{.kind = "pread", .lanes = 1};
  options.fault = *parse_fault("reorder,2");
  const auto reader = make(options, &sink);
  for (uint64_t tag = 1; tag <= 6; tag++) reader->submit(fixture.request(tag, tag * 65536, 65536, tag * 65536));
  REQUIRE(sink.wait_for(6));
  CHECK(sink.order() != std::vector<uint64_t>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("faults are described in words") {
  CHECK(parse_fault("delay,4,500")->delay_ns == 500'000);
  CHECK(parse_fault("short,3")->every_n == 3);
  for (const char* bad :
       {"", "short", "short,", "short,0", "short,-1", "short,3,4", "shorter,3", "delay,1,x", "eio,1 "}) {
    CAPTURE(bad);
    CHECK(parse_fault(bad).status().code() == Code::kInvalidArgument);
  }
}

#if LES_HAS_URING
// In a child, as the filter stays for good: io_uring_setup answers with `error`. What making a reader says comes back.
std::string uring_error_when_refused(int error) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{4, rules};
    std::string text = "no filter";
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0) {
      CollectingSink sink;
      const Result<std::unique_ptr<AsyncReader>> reader = make_reader({.kind = "uring", .lanes = 8}, &sink);
      text =
          reader.is_ok() ? "made" : std::string(code_name(reader.status().code())) + ": " + reader.status().message();
    }
    [[maybe_unused]] const ssize_t n = write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  char text[512] = {};
  [[maybe_unused]] const ssize_t n = read(ends[0], text, sizeof(text) - 1);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}

TEST_CASE("a forbidden, unknown or unaffordable ring is an error in words") {
  const std::string code = std::string(code_name(Code::kUnsupported)) + ": io_uring";
  for (const auto& [error, words] : {std::pair{EPERM, "Operation not permitted"}, std::pair{ENOSYS, "not implemented"},
                                     std::pair{ENOMEM, "Cannot allocate memory"}}) {
    const std::string said = uring_error_when_refused(error);
    CAPTURE(said);
    if (said == "no filter") {
      MESSAGE("skipped: this system installs no seccomp filter");
      return;
    }
    CHECK(said.find(code) == 0);
    CHECK(said.find(words) != std::string::npos);
  }
}
#endif

TEST_CASE("a ring is made, or refused in words, with little locked memory") {
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_MEMLOCK, &before) == 0);
  rlimit small = before;
  small.rlim_cur = std::min<rlim_t>(before.rlim_max, 64 * kKiB);
  REQUIRE(setrlimit(RLIMIT_MEMLOCK, &small) == 0);
  CollectingSink sink;
  const Result<std::unique_ptr<AsyncReader>> reader = make_uring_reader({.depth = 64}, &sink);
  if (!reader.is_ok()) CHECK(reader.status().code() == Code::kUnsupported);
  if (!reader.is_ok()) MESSAGE(reader.status().message());
  setrlimit(RLIMIT_MEMLOCK, &before);
}

}  // namespace
}  // namespace les
