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

// One unit of kRows rows times kCols columns. Row r is w + r * stride; acc[r * acc_stride + c].
template <typename T, int kRows, int kCols>
inline __attribute__((always_inline)) void unit_product(const uint8_t* w, size_t stride, const Column* x, F* acc,
                                                        size_t acc_stride, int bias) {
#pragma GCC unroll kUnroll
  for (int c = 0; c < kCols; ++c) {
    B x_step[kSteps];
    I start[kSteps] = {};
    F sums[kSteps];
    const S8 x_scale = s8_load(x[c].scale);
#pragma GCC unroll kUnroll
    for (int j = 0; j < kSteps; ++j) {
      x_step[j] = b_load(x[c].q8 + j * kStep);
      if constexpr (T::kForm == Form::kBiased) start[j] = dot_start(x_step[j], bias);
      if constexpr (T::kMins == Mins::kPer16) sums[j] = quad_sums(x_step[j], x_scale, j);
    }
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) {
      const T unit = T::open(w + static_cast<size_t>(r) * stride);
      const auto scale = s_mul(unit.scale, x_scale);
      F total = acc[static_cast<size_t>(r) * acc_stride + static_cast<size_t>(c)];
      if constexpr (T::kMins == Mins::kPer32) total = sub_mins(total, unit.min, s8_load(x[c].sum));
#pragma GCC unroll kUnroll
      for (int j = 0; j < kSteps; ++j) {
        total = scaled_dot<T::kForm == Form::kSigned>(total, unit.step(j), x_step[j], start[j], scale, j);
        if constexpr (T::kMins == Mins::kPer16) total = sub_mins16(total, unit.min, sums[j], j);
      }
      acc[static_cast<size_t>(r) * acc_stride + static_cast<size_t>(c)] = total;
    }
  }
}

// The same for one column, in the same order for each row, but all rows a step at a time: chains of different rows
// overlap. Measured on Zen 5: 2 to 27 % faster than row after row.
template <typename T, int kRows>
inline __attribute__((always_inline)) void unit_rows(const uint8_t* w, size_t stride, const Column& x, F* acc) {
  const S8 x_scale = s8_load(x.scale);
  T unit[kRows];
  decltype(T::scale) scale[kRows];
#pragma GCC unroll kUnroll
  for (int r = 0; r < kRows; ++r) {
    unit[r] = T::open(w + static_cast<size_t>(r) * stride);
    scale[r] = s_mul(unit[r].scale, x_scale);
    if constexpr (T::kMins == Mins::kPer32) acc[r] = sub_mins(acc[r], unit[r].min, s8_load(x.sum));
  }
#pragma GCC unroll kUnroll
  for (int j = 0; j < kSteps; ++j) {
    const B x_step = b_load(x.q8 + j * kStep);
    I start = {};
    if constexpr (T::kForm == Form::kBiased) start = dot_start(x_step, T::kBias);
    F sums = {};
    if constexpr (T::kMins == Mins::kPer16) sums = quad_sums(x_step, x_scale, j);
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) {
      acc[r] = scaled_dot<T::kForm == Form::kSigned>(acc[r], unit[r].step(j), x_step, start, scale[r], j);
      if constexpr (T::kMins == Mins::kPer16) acc[r] = sub_mins16(acc[r], unit[r].min, sums, j);
    }
  }
}

struct RowShape {
  size_t row_bytes;
  int n_units;      // whole ones
  int tail_groups;  // groups of 32 after them
};

}  // namespace
}  // namespace les
