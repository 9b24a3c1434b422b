// Products of quantised weights with 8-bit activations, written once for every instruction set.
//
// Weights are taken in units of 256. A type T describes how a unit is opened:
//   T::open(p)   a unit that starts at p;  .step(j) its j-th kStep weights as bytes;  .scale one S8 or S16
//   kForm        what the bytes are: unsigned, unsigned with kBias added, or signed
//   kMins        whether .min * (sum of activations) is to be taken off, for each 32 or 16 weights
//   kBlock, kBlockBytes   as in the file
// A sum is built up in the same order whatever the tile, so results depend on row and column only.
#pragma once

#include <cstring>

#include "kernels/kernels.h"

namespace les {
namespace {

enum class Form { kUnsigned, kBiased, kSigned };
enum class Mins { kNone, kPer32, kPer16 };

constexpr int kUnit = 256;
constexpr int kSteps = kUnit / kStep;
constexpr int kUnitGroups = kUnit / kActBlock;

template <typename T>
constexpr size_t kUnitBytes = static_cast<size_t>(kUnit / T::kBlock) * T::kBlockBytes;

struct Column {
  const int8_t* q8;
  const float* scale;
  const float* sum;
};

// The last, incomplete unit of a column, filled up with zeros.
struct alignas(64) ColumnTail {
  int8_t q8[kUnit];
  float scale[kUnitGroups];
  float sum[kUnitGroups];
};

inline Column column(const Activations& x, int c) {
  const size_t at = static_cast<size_t>(c) * x.ld;
  return {x.q8 + at, x.scale + at / kActBlock, x.sum + at / kActBlock};
}

inline Column advance(const Column& x, int units) {
  return {x.q8 + static_cast<ptrdiff_t>(units) * kUnit, x.scale + static_cast<ptrdiff_t>(units) * kUnitGroups,
          x.sum + static_cast<ptrdiff_t>(units) * kUnitGroups};
}

inline Column fill_tail(const Column& x, int n_groups, ColumnTail& tail) {
  std::memset(&tail, 0, sizeof(tail));
  std::memcpy(tail.q8, x.q8, static_cast<size_t>(n_groups) * kActBlock);
  std::memcpy(tail.scale, x.scale, static_cast<size_t>(n_groups) * sizeof(float));
  std::memcpy(tail.sum, x.sum, static_cast<size_t>(n_groups) * sizeof(float));
  return {tail.q8, tail.scale, tail.sum};
}

struct RowShape {
  size_t row_bytes;
  int n_units;      // whole ones
  int tail_groups;  // groups of 32 after them
};

// What an instruction set brings, in matmul_unit_inl.h or matmul_neon.h: one unit of kRows rows times kCols columns.
// Row r is w + r * stride; acc[r * acc_stride + c].
template <typename T, int kRows, int kCols>
inline void unit_product(const uint8_t* w, size_t stride, const Column* x, F* acc, size_t acc_stride, int bias);

// The same for one column, with the same bits, for weights straight from memory.
template <typename T, int kRows>
inline void unit_rows(const uint8_t* w, size_t stride, const Column& x, F* acc);

}  // namespace
}  // namespace les
