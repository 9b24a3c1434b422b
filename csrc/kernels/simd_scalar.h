// Plain C++ with the shape of the vector headers: eight float lanes, steps of 32 weights. The reference for the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/half_scalar.h"

namespace les {
namespace {

constexpr int kLanes = 8;  // floats in an F
constexpr int kStep = 32;  // weights in a B
constexpr int kTileRows = 2, kTileCols = 1;  // of the inner tile of matmul
constexpr bool kHasSignedDot = true;  // signed weights need no bias
constexpr int kUnroll = 1;  // the compiler decides
constexpr int kGemvRows = 1;
constexpr bool kHasPairProduct = false;

struct F {
  float v[kLanes];
};
struct B {
  int8_t v[kStep];
};
struct I {
  int32_t v[kLanes];
};

#define LES_LANES for (int i = 0; i < kLanes; ++i)

inline F f_set(float a) {
  F r;
  LES_LANES r.v[i] = a;
  return r;
}
inline F f_zero() { return f_set(0.0f); }
inline F f_load(const float* p) {
  F r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
inline void f_store(float* p, F a) { std::memcpy(p, a.v, sizeof(a.v)); }
// The first n lanes; the others are zero.
inline F f_load_n(const float* p, int n) {
  F r = f_zero();
  std::memcpy(r.v, p, sizeof(float) * static_cast<size_t>(n));
  return r;
}
inline void f_store_n(float* p, F a, int n) { std::memcpy(p, a.v, sizeof(float) * static_cast<size_t>(n)); }
inline F f_add(F a, F b) {
  F r;
  LES_LANES r.v[i] = a.v[i] + b.v[i];
  return r;
}
inline F f_sub(F a, F b) {
  F r;
  LES_LANES r.v[i] = a.v[i] - b.v[i];
  return r;
}
inline F f_mul(F a, F b) {
  F r;
  LES_LANES r.v[i] = a.v[i] * b.v[i];
  return r;
}
inline F f_div(F a, F b) {
  F r;
  LES_LANES r.v[i] = a.v[i] / b.v[i];
  return r;
}
// a * b + c and c - a * b.
inline F f_fma(F a, F b, F c) {
  F r;
  LES_LANES r.v[i] = a.v[i] * b.v[i] + c.v[i];
  return r;
}
inline F f_fnma(F a, F b, F c) {
  F r;
  LES_LANES r.v[i] = c.v[i] - a.v[i] * b.v[i];
  return r;
}
// b when either is not a number.
inline F f_min(F a, F b) {
  F r;
  LES_LANES r.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return r;
}
inline F f_max(F a, F b) {
  F r;
  LES_LANES r.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return r;
}
inline F f_abs(F a) {
  F r;
  LES_LANES r.v[i] = __builtin_fabsf(a.v[i]);
  return r;
}
inline F f_copysign(F a, F s) {
  F r;
  LES_LANES r.v[i] = __builtin_copysignf(a.v[i], s.v[i]);
  return r;
}
// a < b ? x : y.
inline F f_select_lt(F a, F b, F x, F y) {
  F r;
  LES_LANES r.v[i] = a.v[i] < b.v[i] ? x.v[i] : y.v[i];
  return r;
}
inline float f_sum(F a) { return ((a.v[0] + a.v[4]) + (a.v[2] + a.v[6])) + ((a.v[1] + a.v[5]) + (a.v[3] + a.v[7])); }
inline float f_hmax(F a) {
  float m = a.v[0];
  LES_LANES m = a.v[i] > m ? a.v[i] : m;
  return m;
}
// Nearest even, for |a| < 2^22.
inline F f_round(F a) {
  F r;
  LES_LANES r.v[i] = (a.v[i] + 12582912.0f) - 12582912.0f;
  return r;
}

// a * 2^n for integral n in [-250, 250].
inline F f_scale2(F a, F n) {
  F r;
  LES_LANES {
    const int whole = static_cast<int>(n.v[i] == n.v[i] ? n.v[i] : 0.0f);
    const int half = whole >> 1;
    r.v[i] = a.v[i] * scalar_pow2(half) * scalar_pow2(whole - half);
  }
  return r;
}

inline F f_load_f16(const uint8_t* p) {
  F r;
  LES_LANES {
    uint16_t h;
    std::memcpy(&h, p + 2 * i, 2);
    r.v[i] = half_to_float(h);
  }
  return r;
}
inline void f_store_f16(uint8_t* p, F a) {
  LES_LANES {
    const uint16_t h = float_to_half(a.v[i]);
    std::memcpy(p + 2 * i, &h, 2);
  }
}
inline F f_load_bf16(const uint8_t* p) {
  F r;
  LES_LANES {
    uint16_t h;
    std::memcpy(&h, p + 2 * i, 2);
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    std::memcpy(&r.v[i], &bits, 4);
  }
  return r;
}
inline F f_load_i8(const int8_t* p) {
  F r;
  LES_LANES r.v[i] = p[i];
  return r;
}
// Integral values in [-128, 127].
inline void f_store_i8(int8_t* p, F a) { LES_LANES p[i] = static_cast<int8_t>(a.v[i]); }

// --- integer dot products -------------------------------------------------------------------------------------------

struct S8 {
  float v[8];
};  // one scale for each 32 of 256 weights
struct S16 {
  float v[16];
};  // one for each 16

inline S8 s8_load(const float* p) {
  S8 r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
inline void s8_store(float* p, S8 s) { std::memcpy(p, s.v, sizeof(s.v)); }
inline S16 s16_load(const float* p) {
  S16 r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
inline void s16_store(float* p, S16 s) { std::memcpy(p, s.v, sizeof(s.v)); }
inline S8 s_mul(S8 a, S8 b) {
  for (int i = 0; i < 8; ++i) a.v[i] *= b.v[i];
  return a;
}
// Each value of b belongs to two of a.
inline S16 s_mul(S16 a, S8 b) {
  for (int i = 0; i < 16; ++i) a.v[i] *= b.v[i / 2];
  return a;
}

inline B b_load(const void* p) {
  B r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
inline void b_store(void* p, B b) { std::memcpy(p, b.v, sizeof(b.v)); }

inline I dot_lanes(B w, B x) {
  I r;
  LES_LANES {
    const int8_t* a = w.v + 4 * i;
    const int8_t* b = x.v + 4 * i;
    r.v[i] = a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
  }
  return r;
}
// What a biased dot product starts from; unused here.
inline I dot_start(B, int) { return {}; }
template <bool kSigned>
inline F scaled_dot(F acc, B w, B x, I, S8 s, int step) {
  const I dot = dot_lanes(w, x);
  LES_LANES acc.v[i] += static_cast<float>(dot.v[i]) * s.v[step];
  return acc;
}
template <bool kSigned>
inline F scaled_dot(F acc, B w, B x, I, S16 s, int step) {
  const I dot = dot_lanes(w, x);
  LES_LANES acc.v[i] += static_cast<float>(dot.v[i]) * s.v[2 * step + i / 4];
  return acc;
}
// acc - m * x_sum, eight lanes.
inline F sub_mins(F acc, S8 m, S8 x_sum) {
  for (int i = 0; i < 8; ++i) acc.v[i] -= m.v[i] * x_sum.v[i];
  return acc;
}
// The scaled sums of every four activations of a step, for sub_mins16.
inline F quad_sums(B x, S8 x_scale, int step) {
  F r;
  LES_LANES r.v[i] =
      static_cast<float>(x.v[4 * i] + x.v[4 * i + 1] + x.v[4 * i + 2] + x.v[4 * i + 3]) * x_scale.v[step];
  return r;
}
inline F sub_mins16(F acc, S16 m, F sums, int step) {
  LES_LANES acc.v[i] -= m.v[2 * step + i / 4] * sums.v[i];
  return acc;
}

inline void prefetch(const void* p) { __builtin_prefetch(p); }

#undef LES_LANES

}  // namespace
}  // namespace les
