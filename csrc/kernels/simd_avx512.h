// AVX-512 F/BW/DQ/VL + VNNI: sixteen float lanes, steps of 64 weights. The dot product takes unsigned weights.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace les {
namespace {

constexpr int kLanes = 16;
constexpr int kStep = 64;
constexpr int kTileRows = 8;
constexpr int kTileCols = 2;
constexpr bool kHasSignedDot = false;
constexpr int kUnroll = 8;
constexpr int kGemvRows = 4;
constexpr bool kHasPairProduct = false;

using F = __m512;
using B = __m512i;
using I = __m512i;

inline F f_set(float a) { return _mm512_set1_ps(a); }
inline F f_zero() { return _mm512_setzero_ps(); }
inline F f_load(const float* p) { return _mm512_loadu_ps(p); }
inline void f_store(float* p, F a) { _mm512_storeu_ps(p, a); }
inline __mmask16 lane_mask(int n) { return static_cast<__mmask16>((1u << n) - 1); }
inline F f_load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(lane_mask(n), p); }
inline void f_store_n(float* p, F a, int n) { _mm512_mask_storeu_ps(p, lane_mask(n), a); }
inline F f_add(F a, F b) { return _mm512_add_ps(a, b); }
inline F f_sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F f_div(F a, F b) { return _mm512_div_ps(a, b); }
inline F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F f_fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
inline F f_min(F a, F b) { return _mm512_min_ps(a, b); }
inline F f_max(F a, F b) { return _mm512_max_ps(a, b); }
inline F f_abs(F a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
inline F f_copysign(F a, F s) {
  const F sign = _mm512_set1_ps(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, s));
}
inline F f_select_lt(F a, F b, F x, F y) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x); }
inline __m256 upper_half(F a) { return _mm256_castsi256_ps(_mm512_extracti64x4_epi64(_mm512_castps_si512(a), 1)); }
inline float f_sum(F a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), upper_half(a));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float f_hmax(F a) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), upper_half(a));
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
inline F f_round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline F f_scale2(F a, F n) { return _mm512_scalef_ps(a, n); }

inline float half_to_float(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
inline uint16_t float_to_half(float x) {
  return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
}
inline F f_load_f16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void f_store_f16(uint8_t* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
inline F f_load_bf16(const uint8_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline F f_load_i8(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline void f_store_i8(int8_t* p, F a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a)));
}

// --- integer dot products -------------------------------------------------------------------------------------------

struct S8 {
  __m256 v;
};
struct S16 {
  __m512 v;
};

inline S8 s8_load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline void s8_store(float* p, S8 s) { _mm256_storeu_ps(p, s.v); }
inline S16 s16_load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void s16_store(float* p, S16 s) { _mm512_storeu_ps(p, s.v); }
inline S8 s_mul(S8 a, S8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline S16 s_mul(S16 a, S8 b) {
  const __m512i pairs = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return {_mm512_mul_ps(a.v, _mm512_permutexvar_ps(pairs, _mm512_castps256_ps512(b.v)))};
}
inline F spread(S8 s, int step) {
  const int a = 2 * step;
  const int b = a + 1;
  const __m512i lanes = _mm512_setr_epi32(a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b);
  return _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(s.v));
}
inline F spread(S16 s, int step) {
  const int a = 4 * step;
  const __m512i lanes =
      _mm512_setr_epi32(a, a, a, a, a + 1, a + 1, a + 1, a + 1, a + 2, a + 2, a + 2, a + 2, a + 3, a + 3, a + 3, a + 3);
  return _mm512_permutexvar_ps(lanes, s.v);
}

inline B b_load(const void* p) { return _mm512_loadu_si512(p); }
inline void b_store(void* p, B b) { _mm512_storeu_si512(p, b); }

inline I dot_start(B x, int bias) {
  const I sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(static_cast<char>(bias)), x);
  return _mm512_sub_epi32(_mm512_setzero_si512(), sums);
}
template <bool kSigned, typename S>
inline F scaled_dot(F acc, B w, B x, I start, S s, int step) {
  static_assert(!kSigned, "weights are biased to be unsigned");
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, w, x)), spread(s, step), acc);
}
// Eight of the sixteen lanes; the others add zero.
inline F sub_mins(F acc, S8 m, S8 x_sum) {
  return _mm512_fnmadd_ps(_mm512_zextps256_ps512(m.v), _mm512_zextps256_ps512(x_sum.v), acc);
}
inline F quad_sums(B x, S8 x_scale, int step) {
  const I sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), x);
  return _mm512_mul_ps(_mm512_cvtepi32_ps(sums), spread(x_scale, step));
}
inline F sub_mins16(F acc, S16 m, F sums, int step) { return _mm512_fnmadd_ps(spread(m, step), sums, acc); }

// Sums of products and nothing else, to measure what registers allow. hide() makes the compiler think that b changes.
using DotSum = I;
inline DotSum dot_add(DotSum sum, B w, B x) { return _mm512_dpbusd_epi32(sum, w, x); }
inline void hide(B& b) { __asm__ volatile("" : "+v"(b)); }

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace les
