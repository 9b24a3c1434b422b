// Activations and guarded memory for the tests and the benchmark of the kernels.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/test_blocks.h"

namespace les {

inline std::vector<TestType> all_test_types() {
  size_t n = 0;
  const TestType* types = test_types(&n);
  return {types, types + n};
}

// Every table that is compiled in and runs here; scalar is the last.
inline std::vector<const KernelTable*> usable_tables() {
  std::vector<const KernelTable*> tables;
  for (const char* name : {"avx512vbmi", "avx512", "avxvnni", "avx2", "neon_i8mm", "neon_dotprod", "neon", "scalar"}) {
    if (const KernelTable* table = kernels_named(name)) tables.push_back(table);
  }
  return tables;
}

// size_bytes of memory that ends at an inaccessible page and starts right behind one if size_bytes is whole pages;
// otherwise bytes before it are checked to be untouched.
class Guarded {
 public:
  explicit Guarded(size_t size_bytes) : size_bytes_(size_bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    inner_bytes_ = (size_bytes + page - 1) / page * page;
    mapped_bytes_ = inner_bytes_ + 2 * page;
    base_ =
        static_cast<uint8_t*>(mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(base_ + page, kFill, inner_bytes_);
    mprotect(base_, page, PROT_NONE);
    mprotect(base_ + page + inner_bytes_, page, PROT_NONE);
    data_ = base_ + page + (inner_bytes_ - size_bytes);
  }
  ~Guarded() { munmap(base_, mapped_bytes_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  template <typename T = uint8_t>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  bool is_intact() const {
    for (size_t i = 0; i < inner_bytes_ - size_bytes_; ++i) {
      if (data_[-1 - static_cast<ptrdiff_t>(i)] != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr uint8_t kFill = 0xa5;
  uint8_t* base_;
  uint8_t* data_;
  size_t size_bytes_, inner_bytes_, mapped_bytes_;
};

// Owns what an Activations points to; columns are quantised by the given table. Nothing lies behind the last column.
struct ActivationBuffer {
  Guarded f32;
  Guarded q8;
  Guarded scale;
  Guarded sum;
  Activations view;

  static size_t n_values(int n_in, int n_cols, size_t ld) {
    return static_cast<size_t>(n_cols - 1) * ld + static_cast<size_t>(n_in);
  }
  ActivationBuffer(const KernelTable& table, int n_in, int n_cols, size_t ld, TestRandom& random)
      : f32(n_values(n_in, n_cols, ld) * sizeof(float)),
        q8(n_values(n_in, n_cols, ld) / kActBlock * kActBlock),
        scale(n_values(n_in, n_cols, ld) / kActBlock * sizeof(float)),
        sum(n_values(n_in, n_cols, ld) / kActBlock * sizeof(float)) {
    for (int c = 0; c < n_cols; ++c) {
      const size_t at = static_cast<size_t>(c) * ld;
      float* x = f32.as<float>() + at;
      for (int i = 0; i < n_in; ++i) x[i] = random.uniform(-1.0f, 1.0f);
      table.quantize_activations(x, n_in / kActBlock * kActBlock, q8.as<int8_t>() + at,
                                 scale.as<float>() + at / kActBlock, sum.as<float>() + at / kActBlock);
    }
    view = {f32.as<float>(), q8.as<int8_t>(), scale.as<float>(), sum.as<float>(), ld, n_in, n_cols};
  }
};

}  // namespace les
