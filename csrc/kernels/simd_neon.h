// ARM NEON: eight float lanes in two registers, steps of 32 weights. The including file brings byte_dot(), which
// multiplies 16 signed bytes and adds them up in four lanes, peak_dot(), and
// kHasPairProduct: whether matmul_i8mm.h is included.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace les {
namespace {

constexpr int kLanes = 8;
constexpr int kStep = 32;
constexpr int kTileRows = kHasPairProduct ? 8 : 4;
constexpr int kTileCols = 2;
constexpr bool kHasSignedDot = true;
constexpr int kUnroll = 8;
constexpr int kGemvRows = 4;

struct F {
  float32x4_t low, high;
};
struct B {
  int8x16_t low, high;
};

inline F f_set(float a) { return {vdupq_n_f32(a), vdupq_n_f32(a)}; }
inline F f_zero() { return f_set(0.0f); }
inline F f_load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
inline void f_store(float* p, F a) {
  vst1q_f32(p, a.low);
  vst1q_f32(p + 4, a.high);
}
inline F f_load_n(const float* p, int n) {
  float padded[kLanes] = {};
  std::memcpy(padded, p, sizeof(float) * static_cast<size_t>(n));
  return f_load(padded);
}
inline void f_store_n(float* p, F a, int n) {
  float all[kLanes];
  f_store(all, a);
  std::memcpy(p, all, sizeof(float) * static_cast<size_t>(n));
}
inline F f_add(F a, F b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
inline F f_sub(F a, F b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
inline F f_mul(F a, F b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
inline F f_div(F a, F b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
inline F f_fma(F a, F b, F c) { return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)}; }
inline F f_fnma(F a, F b, F c) { return {vfmsq_f32(c.low, a.low, b.low), vfmsq_f32(c.high, a.high, b.high)}; }
// Not a number when either is not.
inline F f_min(F a, F b) { return {vminq_f32(a.low, b.low), vminq_f32(a.high, b.high)}; }
inline F f_max(F a, F b) { return {vmaxq_f32(a.low, b.low), vmaxq_f32(a.high, b.high)}; }
inline F f_abs(F a) { return {vabsq_f32(a.low), vabsq_f32(a.high)}; }
inline F f_copysign(F a, F s) {
  const uint32x4_t sign = vdupq_n_u32(0x80000000u);
  return {vbslq_f32(sign, s.low, a.low), vbslq_f32(sign, s.high, a.high)};
}
inline F f_select_lt(F a, F b, F x, F y) {
  return {vbslq_f32(vcltq_f32(a.low, b.low), x.low, y.low), vbslq_f32(vcltq_f32(a.high, b.high), x.high, y.high)};
}
inline float f_sum(F a) { return vaddvq_f32(vaddq_f32(a.low, a.high)); }
inline float f_hmax(F a) { return vmaxvq_f32(vmaxq_f32(a.low, a.high)); }
inline F f_round(F a) { return {vrndnq_f32(a.low), vrndnq_f32(a.high)}; }
inline float32x4_t scale2(float32x4_t a, float32x4_t n) {
  const int32x4_t whole = vcvtq_s32_f32(n);
  const int32x4_t half = vshrq_n_s32(whole, 1);
  const int32x4_t rest = vsubq_s32(whole, half);
  const int32x4_t bias = vdupq_n_s32(127);
  const float32x4_t first = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
  const float32x4_t second = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
  return vmulq_f32(vmulq_f32(a, first), second);
}
inline F f_scale2(F a, F n) { return {scale2(a.low, n.low), scale2(a.high, n.high)}; }

inline float half_to_float(uint16_t h) { return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0); }
inline uint16_t float_to_half(float x) { return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0); }
inline F f_load_f16(const uint8_t* p) {
  const float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(p));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}
inline void f_store_f16(uint8_t* p, F a) {
  vst1q_u8(p, vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(a.low), a.high)));
}
inline F f_load_bf16(const uint8_t* p) {
  const uint16x8_t words = vreinterpretq_u16_u8(vld1q_u8(p));
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(words), 16)),
          vreinterpretq_f32_u32(vshll_high_n_u16(words, 16))};
}
inline F f_load_i8(const int8_t* p) {
  const int16x8_t words = vmovl_s8(vld1_s8(p));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words))};
}
inline void f_store_i8(int8_t* p, F a) {
  const int16x4_t low = vqmovn_s32(vcvtq_s32_f32(a.low));
  vst1_s8(p, vqmovn_s16(vqmovn_high_s32(low, vcvtq_s32_f32(a.high))));
}

// --- integer dot products -------------------------------------------------------------------------------------------

struct S8 {
  float v[8];
};
struct S16 {
  float v[16];
};

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
  S8 r;
  f_store(r.v, f_mul(f_load(a.v), f_load(b.v)));
  return r;
}
inline S16 s_mul(S16 a, S8 b) {
  S16 r;
  for (int i = 0; i < 2; ++i) {
    const float32x4_t x = vld1q_f32(b.v + 4 * i);
    vst1q_f32(r.v + 8 * i, vmulq_f32(vld1q_f32(a.v + 8 * i), vzip1q_f32(x, x)));
    vst1q_f32(r.v + 8 * i + 4, vmulq_f32(vld1q_f32(a.v + 8 * i + 4), vzip2q_f32(x, x)));
  }
  return r;
}

inline B b_load(const void* p) {
  const int8_t* bytes = static_cast<const int8_t*>(p);
  return {vld1q_s8(bytes), vld1q_s8(bytes + 16)};
}
inline void b_store(void* p, B b) {
  vst1q_s8(static_cast<int8_t*>(p), b.low);
  vst1q_s8(static_cast<int8_t*>(p) + 16, b.high);
}

// Sums of products and nothing else, to measure what registers allow. hide() makes the compiler think that b changes.
struct DotSum {
  int32x4_t low, high;
};
inline DotSum dot_add(DotSum sum, B w, B x) {
  return {peak_dot(sum.low, w.low, x.low), peak_dot(sum.high, w.high, x.high)};
}
inline void hide(B& b) { __asm__ volatile("" : "+w"(b.low), "+w"(b.high)); }

inline void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace
}  // namespace les
