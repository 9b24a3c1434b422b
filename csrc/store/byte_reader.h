// Sequential, checked reading of a file's head: every length is held against what the file still has before anything is
// allocated for it. Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace les {

// A header above this is refused: the largest vocabularies take some 30 MB, and what is parsed takes a multiple in
// memory.
constexpr uint64_t kMaxHeadBytes = 128 << 20;

// A name from a file as one short line of ASCII, for messages.
std::string printable(const std::string& name);

class ByteReader {
 public:
  static Result<ByteReader> open(const std::string& path);

  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }
  uint64_t position() const { return position_; }
  uint64_t left_bytes() const { return size_bytes_ - position_; }

  // what: named in the error when the file ends before it.
  Status read(void* to, uint64_t n_bytes, const char* what);
  template <typename T>
  Result<T> number(const char* what) {
    T value{};
    LES_RETURN_IF_ERROR(read(&value, sizeof(T), what));
    return value;
  }
  Result<std::string> text(const char* what);
  // Refuses a count of items that cannot lie in the rest of the file, or of a header.
  Result<uint64_t> count(uint64_t min_item_bytes, const char* what);

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  uint64_t size_bytes_ = 0, position_ = 0;
};

}  // namespace les
