// Owners of aligned memory. Buffers are page-aligned so that direct I/O may fill them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace les {

constexpr size_t kPageBytes = 16 * 1024;  // Apple's page; a multiple of every other page and of direct I/O's unit

// Movable owner of `size_bytes` zeroed bytes at a multiple of kPageBytes. Pages are committed when first touched.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }

  // Gives whole pages in [offset_bytes, offset_bytes + size_bytes) back to the system; they read as zero afterwards.
  void release(size_t offset_bytes, size_t size_bytes);

 private:
  friend Result<Buffer> make_buffer(size_t size_bytes);
  uint8_t* data_ = nullptr;
  size_t size_bytes_ = 0;
};

Result<Buffer> make_buffer(size_t size_bytes);

}  // namespace les
