// Products in float: F32, F16 and BF16 weights, and quantised weights turned into float first.
// A sum of one row and column runs over kLanes partial sums from left to right, whatever the tile.
#pragma once

#include <cstring>

#include "kernels/matmul_inl.h"

namespace les {
namespace {

constexpr int kFloatRows = kUnroll > 1 ? 4 : 1;
constexpr int kFloatCols = kLanes == 16 ? 4 : 2;

struct FloatF32 {
  static constexpr size_t kBytes = 4;
  static inline F load(const uint8_t* p) {
    return f_load(reinterpret_cast<const float*>(p));  // vector loads take any address
  }
};
struct FloatF16 {
  static constexpr size_t kBytes = 2;
  static inline F load(const uint8_t* p) { return f_load_f16(p); }
};
struct FloatBF16 {
  static constexpr size_t kBytes = 2;
  static inline F load(const uint8_t* p) { return f_load_bf16(p); }
};

// acc[r * acc_stride + c] += n values of kRows rows times kCols columns; column c is x + c * ld.
template <typename L, int kRows, int kCols>
inline void float_tile(const uint8_t* w, size_t stride, const float* x, size_t ld, int n, F* acc, size_t acc_stride) {
  F total[kRows * kCols];
#pragma GCC unroll kUnroll
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll kUnroll
    for (int c = 0; c < kCols; ++c)
      total[r * kCols + c] = acc[static_cast<size_t>(r) * acc_stride + static_cast<size_t>(c)];
  }
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    F weights[kRows];
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) {
      weights[r] = L::load(w + static_cast<size_t>(r) * stride + static_cast<size_t>(i) * L::kBytes);
    }
#pragma GCC unroll kUnroll
    for (int c = 0; c < kCols; ++c) {
      const F activations = f_load(x + static_cast<size_t>(c) * ld + i);
#pragma GCC unroll kUnroll
      for (int r = 0; r < kRows; ++r) total[r * kCols + c] = f_fma(weights[r], activations, total[r * kCols + c]);
    }
  }
  if (i < n) {
    for (int r = 0; r < kRows; ++r) {
      alignas(64) uint8_t padded[kLanes * L::kBytes] = {};
      std::memcpy(padded, w + static_cast<size_t>(r) * stride + static_cast<size_t>(i) * L::kBytes,
                  static_cast<size_t>(n - i) * L::kBytes);
      const F weights = L::load(padded);
      for (int c = 0; c < kCols; ++c) {
        total[r * kCols + c] =
            f_fma(weights, f_load_n(x + static_cast<size_t>(c) * ld + i, n - i), total[r * kCols + c]);
      }
    }
  }
#pragma GCC unroll kUnroll
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll kUnroll
    for (int c = 0; c < kCols; ++c)
      acc[static_cast<size_t>(r) * acc_stride + static_cast<size_t>(c)] = total[r * kCols + c];
  }
}

template <typename L, int kRows, int kCols>
inline void float_block(const uint8_t* w, size_t stride, const Activations& x, int c, float* y, size_t ldy) {
  F acc[kRows * kCols];
  for (int i = 0; i < kRows * kCols; ++i) acc[i] = f_zero();
  float_tile<L, kRows, kCols>(w, stride, x.f32 + static_cast<size_t>(c) * x.ld, x.ld, x.n_in, acc, kCols);
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kCols; ++i)
      y[static_cast<size_t>(c + i) * ldy + static_cast<size_t>(r)] = f_sum(acc[r * kCols + i]);
  }
}

template <typename L, int kRows>
inline void float_rows(const uint8_t* w, size_t stride, const Activations& x, float* y, size_t ldy) {
  int c = 0;
  for (; c + kFloatCols <= x.n_cols; c += kFloatCols) float_block<L, kRows, kFloatCols>(w, stride, x, c, y, ldy);
  for (; c < x.n_cols; ++c) float_block<L, kRows, 1>(w, stride, x, c, y, ldy);
}

template <typename L>
void matmul_float(const uint8_t* w, size_t row_bytes, int n_rows, const Activations& x, float* y, size_t ldy) {
  int r = 0;
  for (; r + kFloatRows <= n_rows; r += kFloatRows) {
    float_rows<L, kFloatRows>(w + static_cast<size_t>(r) * row_bytes, row_bytes, x, y + r, ldy);
  }
  for (; r < n_rows; ++r) float_rows<L, 1>(w + static_cast<size_t>(r) * row_bytes, row_bytes, x, y + r, ldy);
}

// --- quantised weights as float -------------------------------------------------------------------------------------

template <typename T>
inline void unit_to_float(const PackedUnit& unit, float* out) {
  constexpr int kGroup = sizeof(decltype(T::scale)) == sizeof(S8) ? 32 : 16;
  for (int g = 0; g < kUnit / kGroup; ++g) {
    const float scale = unit.scale[g];
    float min = 0.0f;
    if constexpr (T::kMins != Mins::kNone) min = unit.min[g];
    for (int i = 0; i < kGroup; ++i) {
      const uint8_t byte = unit.w[g * kGroup + i];
      const int value = T::kForm == Form::kSigned ? static_cast<int8_t>(byte) : byte - T::kBias;
      out[g * kGroup + i] = scale * static_cast<float>(value) - min;
    }
  }
}

template <typename T, int kRows>
inline void dequantized_rows(const uint8_t* w, const RowShape& shape, const Activations& x, int first_col, int n_cols,
                             float* y, size_t ldy) {
  alignas(64) float weights[kRows * kUnit];
  F acc[kRows * kColumnBlock];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < n_cols; ++c) acc[r * kColumnBlock + c] = f_zero();
  }
  const int n_units = shape.n_units + (shape.tail_groups > 0 ? 1 : 0);
  for (int u = 0; u < n_units; ++u) {
    const int n = u < shape.n_units ? kUnit : shape.tail_groups * kActBlock;
    for (int r = 0; r < kRows; ++r) {
      PackedUnit unit;
      pack_row_unit<T>(w + static_cast<size_t>(r) * shape.row_bytes, shape, u, unit);
      unit_to_float<T>(unit, weights + r * kUnit);
    }
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(weights);
    const float* at = x.f32 + static_cast<size_t>(first_col) * x.ld + static_cast<size_t>(u) * kUnit;
    int c = 0;
    for (; c + kFloatCols <= n_cols; c += kFloatCols) {
      float_tile<FloatF32, kRows, kFloatCols>(bytes, kUnit * sizeof(float), at + static_cast<size_t>(c) * x.ld, x.ld, n,
                                              acc + c, kColumnBlock);
    }
    for (; c < n_cols; ++c) {
      float_tile<FloatF32, kRows, 1>(bytes, kUnit * sizeof(float), at + static_cast<size_t>(c) * x.ld, x.ld, n, acc + c,
                                     kColumnBlock);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < n_cols; ++c) {
      y[static_cast<size_t>(first_col + c) * ldy + static_cast<size_t>(r)] = f_sum(acc[r * kColumnBlock + c]);
    }
  }
}

template <typename T>
void matmul_dequantized(const uint8_t* w, size_t row_bytes, int n_rows, const Activations& x, float* y, size_t ldy) {
  const RowShape shape = row_shape(row_bytes, x.n_in);
  for (int c = 0; c < x.n_cols; c += kColumnBlock) {
    const int n_cols = x.n_cols - c < kColumnBlock ? x.n_cols - c : kColumnBlock;
    int r = 0;
    for (; r + kFloatRows <= n_rows; r += kFloatRows) {
      dequantized_rows<T, kFloatRows>(w + static_cast<size_t>(r) * row_bytes, shape, x, c, n_cols, y + r, ldy);
    }
    for (; r < n_rows; ++r)
      dequantized_rows<T, 1>(w + static_cast<size_t>(r) * row_bytes, shape, x, c, n_cols, y + r, ldy);
  }
}

}  // namespace
}  // namespace les
