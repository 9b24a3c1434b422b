#include "base/arena.h"

#include <sys/mman.h>

#include <utility>

#include "base/bytes.h"

namespace les {

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

void Buffer::release(size_t offset_bytes, size_t size_bytes) {
  const size_t begin = align_up(offset_bytes, kPageBytes);
  const size_t end = align_down(offset_bytes + size_bytes, kPageBytes);
  if (end <= begin || end > size_bytes_) return;
  madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

Result<Buffer> make_buffer(size_t size_bytes) {
  Buffer buffer;
  if (size_bytes == 0) return buffer;
  const size_t whole = align_up(size_bytes, kPageBytes);
  // One page more than needed: mmap aligns to the system's page only, and the surplus is cut off below.
  void* base = mmap(nullptr, whole + kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return make_error(Code::kOutOfMemory, "cannot allocate %zu bytes", whole);
  const auto start = reinterpret_cast<uintptr_t>(base);
  const uintptr_t aligned = align_up(start, kPageBytes);
  if (aligned > start) munmap(base, aligned - start);
  const uintptr_t tail = aligned + whole;
  if (start + whole + kPageBytes > tail) munmap(reinterpret_cast<void*>(tail), start + whole + kPageBytes - tail);
  buffer.data_ = reinterpret_cast<uint8_t*>(aligned);
  buffer.size_bytes_ = whole;
#ifdef MADV_HUGEPAGE
  if (whole >= 8 * kMiB) madvise(buffer.data_, whole, MADV_HUGEPAGE);
#endif
  return buffer;
}

}  // namespace les
