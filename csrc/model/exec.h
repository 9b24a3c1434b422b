// What a forward pass computes with: kernels, threads, and scratch memory that is given back when a scope ends.
// Thread-safety: one forward pass at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/arena.h"
#include "cpu/thread_pool.h"
#include "kernels/kernels.h"

namespace les {

// A stack of buffers. The planned size is one block; what goes beyond it is allocated and shows in high_water_bytes.
class Scratch {
 public:
  Status reserve(size_t size_bytes);
  // n values, 64-byte aligned, not initialised; valid until the enclosing scope ends.
  template <typename T>
  T* alloc(size_t n) {
    return reinterpret_cast<T*>(take(n * sizeof(T)));
  }
  size_t high_water_bytes() const { return high_water_bytes_; }
  size_t planned_bytes() const { return blocks_.empty() ? 0 : blocks_.front().size_bytes(); }

 private:
  friend class ScratchScope;
  uint8_t* take(size_t size_bytes);
  std::vector<Buffer> blocks_;
  size_t block_ = 0, used_ = 0;          // position: bytes used in the current block
  size_t total_ = 0, high_water_bytes_ = 0;
};

class ScratchScope {
 public:
  explicit ScratchScope(Scratch& scratch)
      : scratch_(scratch), block_(scratch.block_), used_(scratch.used_), total_(scratch.total_) {}
  ~ScratchScope() {
    scratch_.block_ = block_;
    scratch_.used_ = used_;
    scratch_.total_ = total_;
  }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  Scratch& scratch_;
  size_t block_, used_, total_;
};

struct Exec {
  const KernelTable* kernels = nullptr;
  ThreadPool* pool = nullptr;
  Scratch* scratch = nullptr;
  bool use_float = false;   // products with activations in float, for exactness checks
};

}  // namespace les
