// A file open for reading, directly (bypassing the page cache) where the file system takes it.
// Thread-safety: reads may run concurrently.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/status.h"

struct iovec;

namespace les {

// preadv as a value, so that tests may answer in the kernel's place: bytes read, or -1 with errno set.
using SysReadFn = int64_t (*)(int fd, const iovec* parts, int n_parts, uint64_t offset_bytes);
int64_t system_read(int fd, const iovec* parts, int n_parts, uint64_t offset_bytes);

struct FileOptions {
  bool try_direct = true;   // O_DIRECT (F_NOCACHE on Apple); falls back to buffered with one line to the log
  // Buffered reads stay in the page cache. Only for simulated flash, where the cache stands for a fast device.
  bool keep_cached = false;
  LogSink log;
  SysReadFn probe_read = system_read;  // the read that tests direct I/O at open
};

class File {
 public:
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }
  bool is_direct() const { return is_direct_.load(std::memory_order_relaxed); }
  bool keeps_cached() const { return keep_cached_; }
  // Offset, length and memory of a direct read must be multiples of this. A power of two, at most 16 KiB.
  uint64_t direct_alignment_bytes() const { return direct_alignment_bytes_; }
  int buffered_fd() const { return fd_; }
  int direct_fd() const { return is_direct() ? direct_fd_ : -1; }  // -1 without direct I/O; open until destruction
  // After EINVAL at read time: no direct reads from now on. Logged once.
  void disable_direct() const;
  // Drops whole pages of the range from the page cache, unless the file keeps its cache.
  void drop_cached(uint64_t offset_bytes, uint64_t size_bytes) const;

  // Blocking, complete or an error that names file, offset, wanted and got. Buffered, then dropped from the page cache.
  Status read_exact(uint64_t offset_bytes, uint64_t size_bytes, uint8_t* dst) const;

 private:
  friend Result<std::unique_ptr<File>> open_file(const std::string& path, const FileOptions& options);
  File() = default;
  std::string path_;
  uint64_t size_bytes_ = 0;
  int fd_ = -1;
  int direct_fd_ = -1;
  mutable std::atomic<bool> is_direct_{false};
  bool keep_cached_ = false;
  uint64_t direct_alignment_bytes_ = 4096;
  LogSink log_;
};

Result<std::unique_ptr<File>> open_file(const std::string& path, const FileOptions& options);

}  // namespace les
