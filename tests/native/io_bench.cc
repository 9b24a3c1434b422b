// Raw bandwidth of this machine's disk by size, reads at a time and reader, beside a bare loop of direct preads.
// bench_reader [FILE]: reads FILE, or makes a temporary one of 1 GiB in the current folder. About 30 s. Not a test.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "io/make_reader.h"
#include "io/uring_reader.h"

namespace les {
namespace {

constexpr uint64_t kFileBytes = kGiB;
constexpr int64_t kRunNs = 300'000'000;

struct Plan {
  const File* file;
  uint64_t size_bytes;
  int depth;
  bool is_unaligned;
  uint64_t offset(std::mt19937_64* random) const {
    const uint64_t n_places = (file->size_bytes() - size_bytes - kPageBytes) / kPageBytes;
    return ((*random)() % n_places) * kPageBytes + (is_unaligned ? 32 : 0);
  }
};

struct Run {
  double gb_per_s = 0;
  double cpu_fraction = 0;  // of one core
};

double cpu_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// `depth` threads, each in a loop of direct preads: what the disk gives to who asks in the plainest way.
Run run_raw(const Plan& plan, uint8_t* memory) {
  std::atomic<uint64_t> n_bytes{0};
  const double cpu_begin = cpu_seconds();
  const int64_t begin_ns = now_ns(), end_ns = begin_ns + kRunNs;
  std::vector<std::thread> threads;
  for (int i = 0; i < plan.depth; i++) {
    threads.emplace_back([&, i] {
      std::mt19937_64 random(static_cast<uint64_t>(i) + 1);
      uint8_t* dst = memory + static_cast<uint64_t>(i) * align_up(plan.size_bytes, kPageBytes);
      const uint64_t size = align_up(plan.size_bytes, plan.file->direct_alignment_bytes());
      while (now_ns() < end_ns) {
        const uint64_t offset = align_down(plan.offset(&random), kPageBytes);
        if (pread(plan.file->direct_fd(), dst, size, static_cast<off_t>(offset)) != static_cast<ssize_t>(size))
          std::abort();
        n_bytes += plan.size_bytes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto took_ns = static_cast<double>(now_ns() - begin_ns);
  return {static_cast<double>(n_bytes) / took_ns, (cpu_seconds() - cpu_begin) * 1e9 / took_ns};
}

// Resubmits from a thread of its own, as a scheduler does: the sink only tells which read is free again.
class FreeList final : public CompletionSink {
 public:
  void on_read_complete(ReadCompletion completion) override {
    const std::lock_guard lock(mutex_);
    if (!completion.status.is_ok()) std::fprintf(stderr, "%s\n", completion.status.message().c_str());
    free_.push_back(completion.tag);
    changed_.notify_one();
  }
  uint64_t take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !free_.empty(); });
    const uint64_t tag = free_.back();
    free_.pop_back();
    return tag;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> free_;
};

Run run_reader(const Plan& plan, uint8_t* memory, const char* kind, bool force_async) {
  FreeList sink;
  Result<std::unique_ptr<AsyncReader>> reader =
      force_async ? make_uring_reader({.depth = plan.depth, .force_async = true}, &sink)
                  : make_reader({.kind = kind, .lanes = plan.depth}, &sink);
  if (!reader.is_ok()) return {};
  std::mt19937_64 random(1);
  const auto submit = [&](uint64_t tag) {
    (*reader)->submit({plan.file, plan.offset(&random), plan.size_bytes,
                       memory + tag * align_up(plan.size_bytes, kPageBytes), tag, ReadClass::kDemand});
  };
  const double cpu_begin = cpu_seconds();
  const int64_t begin_ns = now_ns();
  uint64_t n_bytes = 0;
  // One more than the depth waits, so that no lane idles for want of work.
  const auto n_open = static_cast<uint64_t>(plan.depth) + 1;
  for (uint64_t tag = 0; tag < n_open; tag++) submit(tag);
  while (now_ns() < begin_ns + kRunNs) {
    submit(sink.take());
    n_bytes += plan.size_bytes;
  }
  for (uint64_t tag = 0; tag < n_open; tag++) {
    sink.take();
    n_bytes += plan.size_bytes;
  }
  const auto took_ns = static_cast<double>(now_ns() - begin_ns);
  return {static_cast<double>(n_bytes) / took_ns, (cpu_seconds() - cpu_begin) * 1e9 / took_ns};
}

// The median of three interleaved rounds: a shared disk is not the same from one second to the next.
Run median(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.gb_per_s < b.gb_per_s; });
  return runs[runs.size() / 2];
}

Status make_file(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0) return make_error(Code::kIo, "%s: cannot create", path.c_str());
  std::vector<uint64_t> block(kMiB);
  std::mt19937_64 random(7);
  for (uint64_t& word : block) word = random();
  bool is_ok = true;
  for (uint64_t done = 0; is_ok && done < kFileBytes; done += 8 * kMiB)
    is_ok = write(fd, block.data(), 8 * kMiB) == 8 * kMiB;
  is_ok = fsync(fd) == 0 && is_ok;
  close(fd);
  return is_ok ? Status::ok() : make_error(Code::kIo, "%s: cannot write", path.c_str());
}

int run_all(const std::string& path) {
  const Result<std::unique_ptr<File>> file =
      open_file(path, {.log = [](const std::string& line) { std::puts(line.c_str()); }});
  Result<Buffer> memory = make_buffer(33 * 4 * kMiB);
  if (!file.is_ok() || !memory.is_ok()) {
    std::fprintf(stderr, "%s%s\n", file.status().message().c_str(), memory.status().message().c_str());
    return 1;
  }
  if (!(*file)->is_direct()) return 1;
  std::fill_n(memory->data(), memory->size_bytes(), uint8_t{1});
  std::printf("%s, %.2f GB, alignment %llu; GB/s (CPU as %% of a core), ratio to raw\n", path.c_str(),
              static_cast<double>((*file)->size_bytes()) / 1e9,
              static_cast<unsigned long long>((*file)->direct_alignment_bytes()));
  std::printf("%9s %5s %9s | %16s | %22s | %22s | %22s\n", "bytes", "depth", "extent", "raw pread", "pread", "io_uring",
              "io_uring async");
  struct Shape {
    uint64_t size_bytes;
    int depth;
    bool is_unaligned;
  };
  const Shape shapes[] = {{128 * kKiB, 4, false}, {128 * kKiB, 16, false}, {589'824, 4, true},
                          {2'800'000, 1, false},  {2'800'000, 2, false},   {2'800'000, 4, false},
                          {2'800'000, 8, false},  {2'800'000, 4, true},    {2'800'000, 8, true}};
  for (const Shape& shape : shapes) {
    const Plan plan{file->get(), shape.size_bytes, shape.depth, shape.is_unaligned};
    std::vector<Run> raw, pread_runs, uring, uring_async;
    for (int round = 0; round < 3; round++) {
      raw.push_back(run_raw(plan, memory->data()));
      pread_runs.push_back(run_reader(plan, memory->data(), "pread", false));
      uring.push_back(run_reader(plan, memory->data(), "uring", false));
      uring_async.push_back(run_reader(plan, memory->data(), "uring", true));
    }
    const Run base = median(raw);
    std::printf("%9llu %5d %9s | %6.2f (%4.0f %%)  ", static_cast<unsigned long long>(shape.size_bytes), shape.depth,
                shape.is_unaligned ? "unaligned" : "aligned", base.gb_per_s, base.cpu_fraction * 100);
    for (const auto& runs : {pread_runs, uring, uring_async}) {
      const Run run = median(runs);
      std::printf(" | %6.2f (%4.0f %%) x %.2f ", run.gb_per_s, run.cpu_fraction * 100, run.gb_per_s / base.gb_per_s);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace les

int main(int argc, char** argv) {
  if (argc > 1) return les::run_all(argv[1]);
  const std::string path = "bench_reader.tmp";
  const les::Status made = les::make_file(path);
  if (!made.is_ok()) std::fprintf(stderr, "%s\n", made.message().c_str());
  const int code = made.is_ok() ? les::run_all(path) : 1;
  unlink(path.c_str());
  return code;
}
