#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <atomic>
#include <cerrno>

#include "io/file.h"
#include "io/transfer.h"
#include "io_test_util.h"

namespace les {
namespace {

int64_t refuse_with_einval(int, const iovec*, int, uint64_t) {
  errno = EINVAL;
  return -1;
}

int64_t interrupt_once(int fd, const iovec* parts, int n_parts, uint64_t offset_bytes) {
  static std::atomic<bool> was_interrupted{false};
  if (!was_interrupted.exchange(true)) {
    errno = EINTR;
    return -1;
  }
  return system_read(fd, parts, n_parts, offset_bytes);
}

struct Lines {
  std::vector<std::string> lines;
  LogSink sink() {
    return [this](const std::string& line) { lines.push_back(line); };
  }
};

TEST_CASE("a file knows its size and reads exactly what is asked") {
  const TempFile temp(100'003);
  const Result<std::unique_ptr<File>> file = open_file(temp.path(), {});
  REQUIRE(file.is_ok());
  CHECK((*file)->size_bytes() == 100'003);
  CHECK(is_power_of_two((*file)->direct_alignment_bytes()));
  std::vector<uint8_t> bytes(100'003);
  CHECK((*file)->read_exact(0, 100'003, bytes.data()).is_ok());
  CHECK(first_wrong(bytes.data(), 0, 100'003) == -1);
  CHECK((*file)->read_exact(4097, 777, bytes.data()).is_ok());
  CHECK(first_wrong(bytes.data(), 4097, 777) == -1);
  CHECK((*file)->read_exact(100'003, 0, nullptr).is_ok());
}

TEST_CASE("a read past the end names file, offset, wanted and got") {
  const TempFile temp(5000);
  const Result<std::unique_ptr<File>> file = open_file(temp.path(), {});
  REQUIRE(file.is_ok());
  std::vector<uint8_t> bytes(3000);
  const Status status = (*file)->read_exact(4000, 3000, bytes.data());
  CHECK(status.code() == Code::kIo);
  CHECK(status.message() ==
        temp.path() + ": read at offset 4000 reached the end of the file: wanted 3000 bytes, got 1000");
  CHECK((*file)->read_exact(UINT64_MAX - 10, 3000, bytes.data()).code() == Code::kInvalidArgument);
}

TEST_CASE("what cannot be opened is refused by name") {
  const Result<std::unique_ptr<File>> absent = open_file("no/such/file", {});
  CHECK(absent.status().code() == Code::kNotFound);
  CHECK(absent.status().message() == "no/such/file: cannot open: No such file or directory");
  CHECK(open_file(".", {}).status().message() == ".: not a regular file");
}

TEST_CASE("EINVAL at the first read falls back to the page cache and says so once") {
  const TempFile temp(70'000);
  Lines lines;
  const Result<std::unique_ptr<File>> file =
      open_file(temp.path(), {.log = lines.sink(), .probe_read = refuse_with_einval});
  REQUIRE(file.is_ok());
  CHECK_FALSE((*file)->is_direct());
  CHECK((*file)->direct_fd() == -1);
  REQUIRE(lines.lines.size() == 1);
  CHECK(lines.lines[0] == temp.path() + ": no direct I/O (read: Invalid argument); reading through the page cache");
  (*file)->disable_direct();
  CHECK(lines.lines.size() == 1);
}

TEST_CASE("an interrupted first read is no refusal") {
  const TempFile temp(70'000);
  Lines plain, interrupted;
  const Result<std::unique_ptr<File>> as_usual = open_file(temp.path(), {.log = plain.sink()});
  const Result<std::unique_ptr<File>> file =
      open_file(temp.path(), {.log = interrupted.sink(), .probe_read = interrupt_once});
  REQUIRE(as_usual.is_ok());
  REQUIRE(file.is_ok());
  CHECK((*file)->is_direct() == (*as_usual)->is_direct());
  CHECK(interrupted.lines == plain.lines);
}

#ifdef __linux__
TEST_CASE("a file system that refuses the flag at open is read through the page cache") {
  // procfs knows no direct I/O.
  Lines lines;
  const Result<std::unique_ptr<File>> file = open_file("/proc/self/status", {.log = lines.sink()});
  REQUIRE(file.is_ok());
  CHECK_FALSE((*file)->is_direct());
  REQUIRE(lines.lines.size() == 1);
  CHECK(lines.lines[0] == "/proc/self/status: no direct I/O (open: Invalid argument); reading through the page cache");
  uint8_t bytes[5];
  CHECK((*file)->read_exact(0, 5, bytes).is_ok());
  CHECK(std::memcmp(bytes, "Name:", 5) == 0);
}

// Pages of the file that are in the page cache.
uint64_t n_cached_pages(const std::string& path, uint64_t size_bytes) {
  const int fd = open(path.c_str(), O_RDONLY);
  void* map = mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (map == MAP_FAILED) return UINT64_MAX;
  std::vector<unsigned char> is_in(size_bytes / 4096 + 1);
  uint64_t n = 0;
  if (mincore(map, size_bytes, is_in.data()) == 0) {
    for (const unsigned char flags : is_in) n += flags & 1;
  }
  munmap(map, size_bytes);
  return n;
}

TEST_CASE("buffered reads leave no second copy in the page cache, unless asked to") {
  constexpr uint64_t kSize = 4 * kMiB;
  const TempFile temp(kSize);
  const Result<std::unique_ptr<File>> dropping = open_file(temp.path(), {.try_direct = false});
  const Result<std::unique_ptr<File>> keeping = open_file(temp.path(), {.try_direct = false, .keep_cached = true});
  REQUIRE(dropping.is_ok());
  REQUIRE(keeping.is_ok());
  std::vector<uint8_t> bytes(kSize);
  CHECK((*keeping)->read_exact(0, kSize, bytes.data()).is_ok());
  CHECK(n_cached_pages(temp.path(), kSize) == kSize / 4096);
  CHECK((*dropping)->read_exact(100, kSize - 200, bytes.data()).is_ok());
  CHECK(n_cached_pages(temp.path(), kSize) == 0);
}
#endif

TEST_CASE("offsets beyond 4 GiB are read where they are") {
  TempFile temp(0);
  constexpr uint64_t kFar = 5 * kGiB + 12'345;
  uint8_t written[6000];
  for (uint64_t i = 0; i < sizeof(written); i++) written[i] = byte_at(kFar + i);
  const int fd = open(temp.path().c_str(), O_WRONLY);
  REQUIRE(pwrite(fd, written, sizeof(written), static_cast<off_t>(kFar)) == sizeof(written));  // the rest is a hole
  close(fd);
  const Result<std::unique_ptr<File>> file = open_file(temp.path(), {});
  REQUIRE(file.is_ok());
  CHECK((*file)->size_bytes() == kFar + sizeof(written));
  uint8_t bytes[6000];
  CHECK((*file)->read_exact(kFar, sizeof(bytes), bytes).is_ok());
  CHECK(first_wrong(bytes, kFar, sizeof(bytes)) == -1);
}

// Runs a transfer against the file with answers cut to at most max_bytes.
Status run_cut(Transfer* transfer, uint64_t max_bytes) {
  while (!transfer->is_done()) {
    const TransferStep& step = transfer->step();
    int64_t n = system_read(step.fd, step.parts, step.n_parts, step.offset_bytes);
    if (n < 0) n = -errno;
    transfer->advance(std::min<int64_t>(n, static_cast<int64_t>(max_bytes)));
  }
  return transfer->status();
}

TEST_CASE("a transfer writes the extent, all of it and nothing else, for every alignment and every cut") {
  constexpr uint64_t kSize = 3 * kMiB + 1234;
  const TempFile temp(kSize);
  const Result<std::unique_ptr<File>> file = open_file(temp.path(), {});
  REQUIRE(file.is_ok());
  Result<Buffer> bounce = make_buffer(kBounceBytes);
  Result<Buffer> memory = make_buffer(4 * kMiB);
  REQUIRE(bounce.is_ok());
  REQUIRE(memory.is_ok());
  struct Case {
    uint64_t offset, size, dst_shift, cut;
  };
  const Case cases[] = {
      {0, 2 * kMiB, 0, UINT32_MAX},         // straight
      {16384, 65536, 16384, UINT32_MAX},    // straight
      {4096, 70'000, 4096, UINT32_MAX},     // ragged tail
      {5000, 70'000, 5000, UINT32_MAX},     // congruent, ragged at both ends
      {5000, 100, 5000, UINT32_MAX},        // congruent within one unit
      {4096 - 50, 100, 4096 - 50, UINT32_MAX},    // congruent across two units
      {5000, 2 * kMiB + 33, 64, UINT32_MAX},      // through the bounce in pieces
      {1, 1, 0, UINT32_MAX},                      //
      {kSize - 777, 777, 64, UINT32_MAX},         // ragged end of the file
      {kSize - 777, 777, kSize - 777, UINT32_MAX},
      {0, kSize, 0, UINT32_MAX},
      {5000, 300'000, 64, 1000},
      {5000, 300'000, 5000, 4097},
      {0, 300'000, 0, 4097},
      {5000, 3000, 64, 1},                        // a byte at a time
      {4096, 8192, 0, 1},
  };
  for (const Case& c : cases) {
    CAPTURE(c.offset);
    CAPTURE(c.size);
    CAPTURE(c.dst_shift);
    CAPTURE(c.cut);
    std::memset(memory->data(), 0xEE, memory->size_bytes());
    uint8_t* dst = memory->data() + c.dst_shift;
    Transfer transfer;
    transfer.start({.file = file->get(), .offset_bytes = c.offset, .size_bytes = c.size, .dst = dst},
                   {bounce->data(), kBounceBytes});
    const Status status = run_cut(&transfer, c.cut);
    CHECK_MESSAGE(status.is_ok(), status.message());
    CHECK(first_wrong(dst, c.offset, c.size) == -1);
    uint64_t n_touched = 0;
    for (uint64_t i = 0; i < memory->size_bytes(); i++) {
      if ((i < c.dst_shift || i >= c.dst_shift + c.size) && memory->data()[i] != 0xEE) n_touched++;
    }
    CHECK(n_touched == 0);
    if (c.cut == UINT32_MAX) CHECK(transfer.is_all_direct() == (*file)->is_direct());
    if (c.cut == UINT32_MAX) CHECK(transfer.n_retries() == 0);
  }
  CHECK((*file)->is_direct() == open_file(temp.path(), {}).value()->is_direct());
}

TEST_CASE("a transfer gives up on what does not pass, and reports what does not work") {
  const TempFile temp(100'000);
  const Result<std::unique_ptr<File>> file = open_file(temp.path(), {});
  REQUIRE(file.is_ok());
  std::vector<uint8_t> dst(1000);
  const ReadRequest request{.file = file->get(), .offset_bytes = 10, .size_bytes = 1000, .dst = dst.data()};
  Result<Buffer> bounce = make_buffer(kBounceBytes);
  Transfer transfer;
  transfer.start(request, {bounce->data(), kBounceBytes});
  int n_steps = 0;
  for (; !transfer.is_done() && n_steps < 100'000; n_steps++) transfer.advance(-EINTR);
  CHECK(n_steps == kMaxStuck + 1);
  CHECK(transfer.status().message() ==
        temp.path() + ": read at offset 10 gave up: Interrupted system call: wanted 1000 bytes, got 0");
  transfer.start(request, {bounce->data(), kBounceBytes});
  transfer.advance(-EIO);
  REQUIRE(transfer.is_done());
  CHECK(transfer.status().message() ==
        temp.path() + ": read at offset 10 failed: Input/output error: wanted 1000 bytes, got 0");

  if (!(*file)->is_direct()) {
    MESSAGE("skipped: no direct I/O in this folder, so none can be refused");
    return;
  }
  transfer.start(request, {});
  CHECK(transfer.status().code() == Code::kOutOfMemory);
  Lines lines;
  const Result<std::unique_ptr<File>> refused = open_file(temp.path(), {.log = lines.sink()});
  transfer.start({.file = refused->get(), .offset_bytes = 10, .size_bytes = 1000, .dst = dst.data()},
                 {bounce->data(), kBounceBytes});
  CHECK(transfer.step().is_direct);
  transfer.advance(-EINVAL);
  REQUIRE_FALSE(transfer.is_done());
  CHECK_FALSE(transfer.step().is_direct);
  CHECK(run_cut(&transfer, UINT32_MAX).is_ok());
  CHECK(first_wrong(dst.data(), 10, 1000) == -1);
  CHECK_FALSE(transfer.is_all_direct());
  CHECK(lines.lines ==
        std::vector<std::string>{temp.path() + ": direct reads are refused; reading through the page cache"});
}

}  // namespace
}  // namespace les
