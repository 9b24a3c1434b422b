#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/arena.h"
#include "base/bytes.h"
#include "io/transfer.h"

namespace les {

static_assert(sizeof(off_t) == 8, "file offsets need 64 bits");

namespace {

std::string errno_text(int error) { return std::generic_category().message(error); }

int open_retrying(const std::string& path, int flags) {
  int fd = -1;
  do fd = open(path.c_str(), flags | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  return fd;
}

// -1 with errno when the file system refuses.
int open_direct(const std::string& path) {
#if defined(__APPLE__)
  const int fd = open_retrying(path, O_RDONLY);
  if (fd >= 0 && fcntl(fd, F_NOCACHE, 1) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
#elif defined(O_DIRECT)
  return open_retrying(path, O_RDONLY | O_DIRECT);
#else
  (void)path;
  errno = EOPNOTSUPP;
  return -1;
#endif
}

// Measured on a virtual disk that asks for 512: reads whose ends are off 4 KiB reach half the bandwidth of others.
constexpr uint64_t kMinAlignmentBytes = 4096;

// What the file system asks for, at least 4096; 0 when it says that direct I/O is impossible.
uint64_t query_direct_alignment([[maybe_unused]] int fd) {
  // Android's sandbox kills on system calls that it does not know; statx is one of them on older versions.
#if defined(__linux__) && !defined(__ANDROID__) && defined(STATX_DIOALIGN) && defined(SYS_statx)
  struct statx info = {};
  if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && (info.stx_mask & STATX_DIOALIGN) != 0) {
    if (info.stx_dio_mem_align == 0 || info.stx_dio_offset_align == 0) return 0;
    return std::max<uint64_t>({info.stx_dio_mem_align, info.stx_dio_offset_align, kMinAlignmentBytes});
  }
#endif
  return kMinAlignmentBytes;
}

// One real read: some file systems take the flag at open and refuse at read. 0, or an errno.
int probe_direct(int fd, uint64_t alignment_bytes, SysReadFn read) {
  Result<Buffer> buffer = make_buffer(alignment_bytes);
  if (!buffer.is_ok()) return ENOMEM;
  const iovec part{(*buffer).data(), static_cast<size_t>(alignment_bytes)};
  for (int attempt = 0; attempt < kMaxStuck; attempt++) {
    if (read(fd, &part, 1, 0) >= 0) return 0;
    if (errno != EINTR && errno != EAGAIN) return errno;
  }
  return EAGAIN;
}

}  // namespace

int64_t system_read(int fd, const iovec* parts, int n_parts, uint64_t offset_bytes) {
  // The plain call is a few hundred nanoseconds cheaper, and the usual case.
  if (n_parts == 1) return pread(fd, parts->iov_base, parts->iov_len, static_cast<off_t>(offset_bytes));
  return preadv(fd, parts, n_parts, static_cast<off_t>(offset_bytes));
}

File::~File() {
  if (direct_fd_ >= 0) close(direct_fd_);
  if (fd_ >= 0) close(fd_);
}

void File::disable_direct() const {
  if (is_direct_.exchange(false) && log_) log_(path_ + ": direct reads are refused; reading through the page cache");
}

void File::drop_cached([[maybe_unused]] uint64_t offset_bytes, [[maybe_unused]] uint64_t size_bytes) const {
#ifdef POSIX_FADV_DONTNEED
  if (keep_cached_) return;
  // The system keeps pages that the range covers in part, so the range is widened to whole ones.
  const uint64_t begin = align_down(offset_bytes, kPageBytes), end = align_up(offset_bytes + size_bytes, kPageBytes);
  posix_fadvise(fd_, static_cast<off_t>(begin), static_cast<off_t>(end - begin), POSIX_FADV_DONTNEED);
#endif
}

Status File::read_exact(uint64_t offset_bytes, uint64_t size_bytes, uint8_t* dst) const {
  Transfer transfer;
  transfer.start({.file = this, .offset_bytes = offset_bytes, .size_bytes = size_bytes, .dst = dst}, {}, false);
  while (!transfer.is_done()) {
    const TransferStep& step = transfer.step();
    const int64_t n_read = system_read(step.fd, step.parts, step.n_parts, step.offset_bytes);
    transfer.advance(n_read < 0 ? -errno : n_read);
  }
  return transfer.status();
}

Result<std::unique_ptr<File>> open_file(const std::string& path, const FileOptions& options) {
  std::unique_ptr<File> file(new File());
  file->path_ = path;
  file->log_ = options.log;
  file->keep_cached_ = options.keep_cached;
  file->fd_ = open_retrying(path, O_RDONLY);
  if (file->fd_ < 0) {
    const int error = errno;
    const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kIo;
    return make_error(code, "%s: cannot open: %s", path.c_str(), errno_text(error).c_str());
  }
  struct stat info = {};
  if (fstat(file->fd_, &info) != 0)
    return make_error(Code::kIo, "%s: cannot stat: %s", path.c_str(), errno_text(errno).c_str());
  if (!S_ISREG(info.st_mode)) return make_error(Code::kInvalidArgument, "%s: not a regular file", path.c_str());
  file->size_bytes_ = static_cast<uint64_t>(info.st_size);
#ifdef POSIX_FADV_RANDOM
  // Read-ahead would bring neighbours of an expert that nobody asked for.
  posix_fadvise(file->fd_, 0, 0, POSIX_FADV_RANDOM);
#endif
#ifdef __APPLE__
  if (!options.keep_cached) fcntl(file->fd_, F_NOCACHE, 1);
#endif
  if (!options.try_direct) return file;

  std::string refusal;
  file->direct_fd_ = open_direct(path);
  if (file->direct_fd_ < 0) {
    refusal = "open: " + errno_text(errno);
  } else {
    const uint64_t alignment = query_direct_alignment(file->direct_fd_);
    file->direct_alignment_bytes_ = alignment;
    if (!is_power_of_two(alignment) || alignment > kPageBytes) {
      refusal = format_text("alignment %llu", static_cast<unsigned long long>(alignment));
    } else if (const int error = probe_direct(file->direct_fd_, file->direct_alignment_bytes_, options.probe_read);
               error != 0) {
      refusal = "read: " + errno_text(error);
    }
  }
  if (refusal.empty()) {
    file->is_direct_ = true;
  } else {
    if (file->direct_fd_ >= 0) close(file->direct_fd_);
    file->direct_fd_ = -1;
    file->direct_alignment_bytes_ = kMinAlignmentBytes;
    if (options.log) options.log(path + ": no direct I/O (" + refusal + "); reading through the page cache");
  }
  return file;
}

}  // namespace les
