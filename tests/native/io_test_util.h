// What the io tests share: a file of known bytes, a sink that collects, a clock that tests own.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "io/async_reader.h"

namespace les {

// The byte at an offset; no period that alignment mistakes could hide behind.
inline uint8_t byte_at(uint64_t offset_bytes) {
  return static_cast<uint8_t>((offset_bytes * 0x9E3779B97F4A7C15ull) >> 56 ^ (offset_bytes >> 9));
}

// In the current folder rather than in /tmp, which may be a tmpfs without direct I/O.
class TempFile {
 public:
  explicit TempFile(uint64_t size_bytes) {
    char pattern[] = "io_test_XXXXXX";
    const int fd = mkstemp(pattern);
    path_ = pattern;
    std::vector<uint8_t> bytes(size_bytes);
    for (uint64_t i = 0; i < size_bytes; i++) bytes[i] = byte_at(i);
    uint64_t n_done = 0;
    while (n_done < size_bytes) {
      const ssize_t n = write(fd, bytes.data() + n_done, size_bytes - n_done);
      if (n <= 0) break;
      n_done += static_cast<uint64_t>(n);
    }
    fsync(fd);
    close(fd);
  }
  ~TempFile() { unlink(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Index of the first wrong byte, or -1.
inline int64_t first_wrong(const uint8_t* bytes, uint64_t offset_bytes, uint64_t size_bytes) {
  for (uint64_t i = 0; i < size_bytes; i++) {
    if (bytes[i] != byte_at(offset_bytes + i)) return static_cast<int64_t>(i);
  }
  return -1;
}

class CollectingSink final : public CompletionSink {
 public:
  void on_read_complete(ReadCompletion completion) override {
    const std::lock_guard lock(mutex_);
    order_.push_back(completion.tag);
    if (!by_tag_.emplace(completion.tag, completion).second) n_twice_++;
    changed_.notify_all();
  }
  // False when they do not come within 20 s.
  bool wait_for(size_t n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return order_.size() >= n; });
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return order_.size();
  }
  ReadCompletion get(uint64_t tag) {
    const std::lock_guard lock(mutex_);
    const auto found = by_tag_.find(tag);
    return found == by_tag_.end() ? ReadCompletion{tag, Status(Code::kNotFound, "no completion"), 0, 0} : found->second;
  }
  std::vector<uint64_t> order() {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  int n_twice() {
    const std::lock_guard lock(mutex_);
    return n_twice_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> order_;
  std::map<uint64_t, ReadCompletion> by_tag_;
  int n_twice_ = 0;
};

// Stands still until released; from then on every sleep ends at once, at its deadline.
class SteppingClock final : public Clock {
 public:
  int64_t now_ns() override {
    const std::lock_guard lock(mutex_);
    return now_ns_;
  }
  void sleep_until_ns(int64_t deadline_ns) override {
    std::unique_lock lock(mutex_);
    released_.wait(lock, [&] { return is_released_; });
    if (now_ns_ < deadline_ns) now_ns_ = deadline_ns;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    released_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  int64_t now_ns_ = 0;
  bool is_released_ = false;
};

}  // namespace les
