// Products of two rows and two columns at a time with SMMLA. A sum within a group is an integer and everything in float
// happens in the order of matmul_neon.h, so the bits are those of the products without SMMLA.
#pragma once

#include "kernels/matmul_neon.h"

namespace les {
namespace {

constexpr int kUnitPieces = kUnit / 8;  // a piece: 8 bytes of one row or column beside 8 of the other

// Two packed rows of a unit: pieces; scales and minima as (row 0, row 0, row 1, row 1).
struct alignas(64) PairUnit {
  int8_t w[2 * kUnit];
  float scale[16][4];
  float min[16][4];
};

// Two columns of a unit: pieces; the others as (column 0, column 1, column 0, column 1).
struct alignas(64) PairColumns {
  int8_t x[2 * kUnit];
  float scale[8][4];
  float sum[16][4];  // of 32 or 16 values, as the weights have minima
};

inline void join_pieces(const int8_t* a, const int8_t* b, int8_t* out) {
  for (int i = 0; i < kUnit; i += 16) {
    const int64x2_t first = vreinterpretq_s64_s8(vld1q_s8(a + i));
    const int64x2_t second = vreinterpretq_s64_s8(vld1q_s8(b + i));
    vst1q_s8(out + 2 * i, vreinterpretq_s8_s64(vzip1q_s64(first, second)));
    vst1q_s8(out + 2 * i + 16, vreinterpretq_s8_s64(vzip2q_s64(first, second)));
  }
}

inline void join_rows(const float* a, const float* b, int n, float (*out)[4]) {
  for (int i = 0; i < n; ++i) vst1q_f32(out[i], vcombine_f32(vdup_n_f32(a[i]), vdup_n_f32(b[i])));
}

inline void join_columns(const float* a, const float* b, int n, float (*out)[4]) {
  for (int i = 0; i < n; i += 4) {
    const float32x4_t low = vzip1q_f32(vld1q_f32(a + i), vld1q_f32(b + i));
    const float32x4_t high = vzip2q_f32(vld1q_f32(a + i), vld1q_f32(b + i));
    vst1q_f32(out[i], vcombine_f32(vget_low_f32(low), vget_low_f32(low)));
    vst1q_f32(out[i + 1], vcombine_f32(vget_high_f32(low), vget_high_f32(low)));
    vst1q_f32(out[i + 2], vcombine_f32(vget_low_f32(high), vget_low_f32(high)));
    vst1q_f32(out[i + 3], vcombine_f32(vget_high_f32(high), vget_high_f32(high)));
  }
}

template <typename P>
constexpr int kGroupsOf = sizeof(decltype(P::scale)) == sizeof(S8) ? 8 : 16;

template <typename P>
inline void join_rows(const PackedUnit& a, const PackedUnit& b, PairUnit& out) {
  join_pieces(reinterpret_cast<const int8_t*>(a.w), reinterpret_cast<const int8_t*>(b.w), out.w);
  join_rows(a.scale, b.scale, kGroupsOf<P>, out.scale);
  if constexpr (P::kMins != Mins::kNone) join_rows(a.min, b.min, kGroupsOf<P>, out.min);
}

template <typename P>
inline void join_columns(const Column& a, const Column& b, PairColumns& out) {
  join_pieces(a.q8, b.q8, out.x);
  join_columns(a.scale, b.scale, 8, out.scale);
  if constexpr (P::kMins == Mins::kPer32) join_columns(a.sum, b.sum, 8, out.sum);
  if constexpr (P::kMins == Mins::kPer16) join_columns(sums_of_16(a).v, sums_of_16(b).v, 16, out.sum);
}

// Lane g of the sums of two rows and two columns, (r0 c0, r0 c1, r1 c0, r1 c1), for the eight lanes.
struct PairSums {
  float32x4_t lane[8];
};

inline void transpose(float32x4_t& a, float32x4_t& b, float32x4_t& c, float32x4_t& d) {
  const float32x4_t ab_even = vtrn1q_f32(a, b), ab_odd = vtrn2q_f32(a, b);
  const float32x4_t cd_even = vtrn1q_f32(c, d), cd_odd = vtrn2q_f32(c, d);
  a = vcombine_f32(vget_low_f32(ab_even), vget_low_f32(cd_even));
  b = vcombine_f32(vget_low_f32(ab_odd), vget_low_f32(cd_odd));
  c = vcombine_f32(vget_high_f32(ab_even), vget_high_f32(cd_even));
  d = vcombine_f32(vget_high_f32(ab_odd), vget_high_f32(cd_odd));
}

inline PairSums load_sums(const F* acc) {
  const F* next = acc + kColumnBlock;
  PairSums s = {
      {acc[0].low, acc[1].low, next[0].low, next[1].low, acc[0].high, acc[1].high, next[0].high, next[1].high}};
  transpose(s.lane[0], s.lane[1], s.lane[2], s.lane[3]);
  transpose(s.lane[4], s.lane[5], s.lane[6], s.lane[7]);
  return s;
}

inline void store_sums(PairSums s, F* acc) {
  F* next = acc + kColumnBlock;
  transpose(s.lane[0], s.lane[1], s.lane[2], s.lane[3]);
  transpose(s.lane[4], s.lane[5], s.lane[6], s.lane[7]);
  acc[0] = {s.lane[0], s.lane[4]};
  acc[1] = {s.lane[1], s.lane[5]};
  next[0] = {s.lane[2], s.lane[6]};
  next[1] = {s.lane[3], s.lane[7]};
}

// kPairs pairs of rows, the units of a pair kChunkUnits apart, times a pair of columns.
template <typename P, int kPairs>
inline __attribute__((always_inline)) void pair_tile(const PairUnit* rows, int n_units, const PairColumns* columns,
                                                     F* acc) {
  constexpr int kPieces = kUnitPieces / kGroupsOf<P>;
  PairSums sums[kPairs];
#pragma GCC unroll kUnroll
  for (int p = 0; p < kPairs; ++p) sums[p] = load_sums(acc + 2 * p * kColumnBlock);
  for (int u = 0; u < n_units; ++u) {
    const PairColumns& x = columns[u];
    if constexpr (P::kMins != Mins::kNone) {
#pragma GCC unroll 16
      for (int g = 0; g < kGroupsOf<P>; ++g) {
        const float32x4_t sum = vld1q_f32(x.sum[g]);
#pragma GCC unroll kUnroll
        for (int p = 0; p < kPairs; ++p) {
          float32x4_t& lane = sums[p].lane[g % 8];
          lane = vfmsq_f32(lane, vld1q_f32(rows[p * kChunkUnits + u].min[g]), sum);
        }
      }
    }
#pragma GCC unroll 16
    for (int g = 0; g < kGroupsOf<P>; ++g) {
      int8x16_t piece[kPieces];
#pragma GCC unroll kUnroll
      for (int i = 0; i < kPieces; ++i) piece[i] = vld1q_s8(x.x + 16 * (kPieces * g + i));
      const float32x4_t x_scale = vld1q_f32(x.scale[kGroupsOf<P> == 8 ? g : g / 2]);
#pragma GCC unroll kUnroll
      for (int p = 0; p < kPairs; ++p) {
        const PairUnit& w = rows[p * kChunkUnits + u];
        int32x4_t dot = vdupq_n_s32(0);
#pragma GCC unroll kUnroll
        for (int i = 0; i < kPieces; ++i) dot = vmmlaq_s32(dot, vld1q_s8(w.w + 16 * (kPieces * g + i)), piece[i]);
        float32x4_t& lane = sums[p].lane[g % 8];
        lane = vfmaq_f32(lane, vcvtq_f32_s32(dot), vmulq_f32(vld1q_f32(w.scale[g]), x_scale));
      }
    }
  }
#pragma GCC unroll kUnroll
  for (int p = 0; p < kPairs; ++p) store_sums(sums[p], acc + 2 * p * kColumnBlock);
}

// Returns the number of columns done: an even one, or none if joining rows would cost more than it saves.
template <typename P, int kRows>
inline int pair_product(const PackedUnit* packed, int n_units, const Column* x, int n_cols, F* acc) {
  static_assert(kRows % 4 == 0);
  constexpr int kMinCols = 4;
  if (n_cols < kMinCols) return 0;
  PairUnit rows[kRows / 2 * kChunkUnits];
  for (int p = 0; p < kRows / 2; ++p) {
    for (int u = 0; u < n_units; ++u) {
      join_rows<P>(packed[2 * p * kChunkUnits + u], packed[(2 * p + 1) * kChunkUnits + u], rows[p * kChunkUnits + u]);
    }
  }
  int c = 0;
  for (; c + 2 <= n_cols; c += 2) {
    PairColumns columns[kChunkUnits];
    for (int u = 0; u < n_units; ++u) join_columns<P>(advance(x[c], u), advance(x[c + 1], u), columns[u]);
    for (int p = 0; p < kRows / 2; p += 2) {
      pair_tile<P, 2>(rows + p * kChunkUnits, n_units, columns, acc + 2 * p * kColumnBlock + c);
    }
  }
  return c;
}

}  // namespace
}  // namespace les
