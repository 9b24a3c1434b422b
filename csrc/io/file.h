// A file open for reading, directly (bypassing the page cache) where the file system takes it.
// Thread-safety: reads may run concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/status.h"

namespace les {

struct FileOptions {
  bool try_direct = true;   // O_DIRECT (F_NOCACHE on Apple); falls back to buffered with one line to the log
  LogSink log;
};

class File {
 public:
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }
  bool is_direct() const { return direct_fd_ >= 0; }
  // Offset, length and memory of a direct read must be multiples of this.
  uint64_t direct_alignment_bytes() const { return direct_alignment_bytes_; }
  int buffered_fd() const { return fd_; }
  int direct_fd() const { return direct_fd_; }   // -1 without direct I/O
  // After EINVAL at read time: no direct reads from now on. Logged once.
  void disable_direct() const;

  // Blocking, complete or an error that names file, offset, wanted and got. Buffered, then dropped from the page cache.
  Status read_exact(uint64_t offset_bytes, uint64_t size_bytes, uint8_t* dst) const;

 private:
  friend Result<std::unique_ptr<File>> open_file(const std::string& path, const FileOptions& options);
  File() = default;
  std::string path_;
  uint64_t size_bytes_ = 0;
  int fd_ = -1;
  mutable int direct_fd_ = -1;
  uint64_t direct_alignment_bytes_ = 4096;
  LogSink log_;
};

Result<std::unique_ptr<File>> open_file(const std::string& path, const FileOptions& options);

}  // namespace les
