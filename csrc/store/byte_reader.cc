#include "store/byte_reader.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace les {

std::string printable(const std::string& name) {
  constexpr size_t kMaxLength = 100;
  std::string text = name.substr(0, kMaxLength);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return name.size() > kMaxLength ? text + "..." : text;
}

Result<ByteReader> ByteReader::open(const std::string& path) {
  ByteReader reader;
  reader.path_ = path;
  reader.file_.reset(std::fopen(path.c_str(), "rb"));
  if (reader.file_ == nullptr) {
    const Code code = errno == ENOENT ? Code::kNotFound : Code::kIo;
    return make_error(code, "%s: cannot be opened: %s", path.c_str(), std::strerror(errno));
  }
  struct stat info{};
  if (fstat(fileno(reader.file_.get()), &info) != 0 || !S_ISREG(info.st_mode)) {
    return make_error(Code::kIo, "%s: not a regular file", path.c_str());
  }
  reader.size_bytes_ = static_cast<uint64_t>(info.st_size);
  std::setvbuf(reader.file_.get(), nullptr, _IOFBF, 1 << 18);
  return reader;
}

Status ByteReader::read(void* to, uint64_t n_bytes, const char* what) {
  if (n_bytes > left_bytes()) {
    return make_error(Code::kCorrupt, "%s: ends in %s: needs %llu bytes at %llu, the file has %llu", path_.c_str(),
                      what, static_cast<unsigned long long>(n_bytes), static_cast<unsigned long long>(position_),
                      static_cast<unsigned long long>(size_bytes_));
  }
  if (n_bytes > kMaxHeadBytes - position_) {
    return make_error(Code::kCorrupt, "%s: %s of %llu bytes at %llu: a header takes %llu bytes at most", path_.c_str(),
                      what, static_cast<unsigned long long>(n_bytes), static_cast<unsigned long long>(position_),
                      static_cast<unsigned long long>(kMaxHeadBytes));
  }
  if (n_bytes > 0 && std::fread(to, 1, n_bytes, file_.get()) != n_bytes) {
    return make_error(Code::kIo, "%s: read of %llu bytes at %llu failed", path_.c_str(),
                      static_cast<unsigned long long>(n_bytes), static_cast<unsigned long long>(position_));
  }
  position_ += n_bytes;
  return Status::ok();
}

Result<uint64_t> ByteReader::count(uint64_t min_item_bytes, const char* what) {
  LES_ASSIGN_OR_RETURN(const uint64_t n, number<uint64_t>(what));
  if (n > left_bytes() / min_item_bytes) {
    return make_error(Code::kCorrupt, "%s: %s counts %llu items, more than the remaining %llu bytes can hold",
                      path_.c_str(), what, static_cast<unsigned long long>(n),
                      static_cast<unsigned long long>(left_bytes()));
  }
  if (n > (kMaxHeadBytes - position_) / min_item_bytes) {
    return make_error(Code::kCorrupt, "%s: %s counts %llu items, more than a header of at most %llu bytes can hold",
                      path_.c_str(), what, static_cast<unsigned long long>(n),
                      static_cast<unsigned long long>(kMaxHeadBytes));
  }
  return n;
}

Result<std::string> ByteReader::text(const char* what) {
  LES_ASSIGN_OR_RETURN(const uint64_t n, count(1, what));
  std::string value(n, '\0');
  LES_RETURN_IF_ERROR(read(value.data(), n, what));
  return value;
}

}  // namespace les
