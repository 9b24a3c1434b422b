// The product of a unit for NEON. Lane g of a sum takes the groups g and g + 8 of every unit (a group shares a scale).
// Sums within a group are integers, so that whatever instruction adds them up gives the same bits.
#pragma once

#include "kernels/matmul_inl.h"

namespace les {
namespace {

// Lane i is the sum of all lanes of the i-th.
inline int32x4_t sums_of_four(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
  return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

inline int32x4_t half_dot(int8x16_t w, int8x16_t x) { return byte_dot(vdupq_n_s32(0), w, x); }
inline int32x4_t whole_dot(B w, B x) { return byte_dot(half_dot(w.low, x.low), w.high, x.high); }

// Adds steps 4 * half to 4 * half + 3 of a unit.
template <typename T>
inline __attribute__((always_inline)) F add_steps(F acc, const T& unit, const B* x, S8 scale, int half) {
  const int j = 4 * half;
  const int32x4_t sums = sums_of_four(whole_dot(unit.step(j), x[0]), whole_dot(unit.step(j + 1), x[1]),
                                      whole_dot(unit.step(j + 2), x[2]), whole_dot(unit.step(j + 3), x[3]));
  float32x4_t& lanes = half == 0 ? acc.low : acc.high;
  lanes = vfmaq_f32(lanes, vcvtq_f32_s32(sums), vld1q_f32(scale.v + j));
  return acc;
}

template <typename T>
inline __attribute__((always_inline)) F add_steps(F acc, const T& unit, const B* x, S16 scale, int half) {
  int32x4_t sums[2];
#pragma GCC unroll kUnroll
  for (int i = 0; i < 2; ++i) {
    const B a = unit.step(4 * half + 2 * i);
    const B b = unit.step(4 * half + 2 * i + 1);
    sums[i] = sums_of_four(half_dot(a.low, x[2 * i].low), half_dot(a.high, x[2 * i].high),
                           half_dot(b.low, x[2 * i + 1].low), half_dot(b.high, x[2 * i + 1].high));
  }
  return {vfmaq_f32(acc.low, vcvtq_f32_s32(sums[0]), vld1q_f32(scale.v + 8 * half)),
          vfmaq_f32(acc.high, vcvtq_f32_s32(sums[1]), vld1q_f32(scale.v + 8 * half + 4))};
}

// Scaled sums of every 16 activations of a unit.
inline S16 sums_of_16(const Column& x) {
  S16 result;
#pragma GCC unroll kUnroll
  for (int half = 0; half < 2; ++half) {
    int16x8_t sums[8];
    for (int i = 0; i < 8; ++i) sums[i] = vpaddlq_s8(vld1q_s8(x.q8 + 128 * half + 16 * i));
    for (int n = 4; n >= 1; n /= 2) {
      for (int i = 0; i < n; ++i) sums[i] = vpaddq_s16(sums[2 * i], sums[2 * i + 1]);
    }
    const float32x4_t scale = vld1q_f32(x.scale + 4 * half);
    vst1q_f32(result.v + 8 * half,
              vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(sums[0]))), vzip1q_f32(scale, scale)));
    vst1q_f32(result.v + 8 * half + 4, vmulq_f32(vcvtq_f32_s32(vmovl_high_s16(sums[0])), vzip2q_f32(scale, scale)));
  }
  return result;
}

template <typename T>
inline F sub_unit_mins(F acc, const T& unit, const Column& x, const S16& sums) {
  if constexpr (T::kMins == Mins::kPer32) acc = f_fnma(f_load(unit.min.v), f_load(x.sum), acc);
  if constexpr (T::kMins == Mins::kPer16) {
    acc = f_fnma(f_load(unit.min.v), f_load(sums.v), acc);
    acc = f_fnma(f_load(unit.min.v + 8), f_load(sums.v + 8), acc);
  }
  return acc;
}

// kRows rows, w + r * stride, times one column; acc[r * acc_stride].
template <typename T, int kRows>
inline __attribute__((always_inline)) void unit_by_groups(const uint8_t* w, size_t stride, const Column& x, F* acc,
                                                          size_t acc_stride) {
  const S8 x_scale = s8_load(x.scale);
  S16 sums = {};
  if constexpr (T::kMins == Mins::kPer16) sums = sums_of_16(x);
  T unit[kRows];
  decltype(T::scale) scale[kRows];
  F total[kRows];
#pragma GCC unroll kUnroll
  for (int r = 0; r < kRows; ++r) {
    unit[r] = T::open(w + static_cast<size_t>(r) * stride);
    scale[r] = s_mul(unit[r].scale, x_scale);
    total[r] = sub_unit_mins(acc[static_cast<size_t>(r) * acc_stride], unit[r], x, sums);
  }
#pragma GCC unroll kUnroll
  for (int half = 0; half < 2; ++half) {
    B x_step[4];
#pragma GCC unroll kUnroll
    for (int j = 0; j < 4; ++j) x_step[j] = b_load(x.q8 + (4 * half + j) * kStep);
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) total[r] = add_steps(total[r], unit[r], x_step, scale[r], half);
  }
#pragma GCC unroll kUnroll
  for (int r = 0; r < kRows; ++r) acc[static_cast<size_t>(r) * acc_stride] = total[r];
}

template <typename T, int kRows, int kCols>
inline __attribute__((always_inline)) void unit_product(const uint8_t* w, size_t stride, const Column* x, F* acc,
                                                        size_t acc_stride, int) {
#pragma GCC unroll kUnroll
  for (int c = 0; c < kCols; ++c) unit_by_groups<T, kRows>(w, stride, x[c], acc + c, acc_stride);
}

template <typename T, int kRows>
inline __attribute__((always_inline)) void unit_rows(const uint8_t* w, size_t stride, const Column& x, F* acc) {
  unit_by_groups<T, kRows>(w, stride, x, acc, 1);
}

}  // namespace
}  // namespace les
