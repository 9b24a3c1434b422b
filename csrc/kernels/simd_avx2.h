// AVX2 + FMA + F16C: eight float lanes, steps of 32 weights. The including file brings byte_dot(), which multiplies
// unsigned by signed bytes and adds four neighbours; see isa_avx2.cc and isa_avxvnni.cc.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace les {
namespace {

constexpr int kLanes = 8;
constexpr int kStep = 32;
constexpr int kTileRows = 4;
constexpr int kTileCols = 2;
constexpr bool kHasSignedDot = true;
constexpr int kUnroll = 8;
constexpr int kGemvRows = 4;
constexpr bool kHasPairProduct = false;

using F = __m256;
using B = __m256i;
using I = __m256i;

inline F f_set(float a) { return _mm256_set1_ps(a); }
inline F f_zero() { return _mm256_setzero_ps(); }
inline F f_load(const float* p) { return _mm256_loadu_ps(p); }
inline void f_store(float* p, F a) { _mm256_storeu_ps(p, a); }
inline __m256i lane_mask(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline F f_load_n(const float* p, int n) { return _mm256_maskload_ps(p, lane_mask(n)); }
inline void f_store_n(float* p, F a, int n) { _mm256_maskstore_ps(p, lane_mask(n), a); }
inline F f_add(F a, F b) { return _mm256_add_ps(a, b); }
inline F f_sub(F a, F b) { return _mm256_sub_ps(a, b); }
inline F f_mul(F a, F b) { return _mm256_mul_ps(a, b); }
inline F f_div(F a, F b) { return _mm256_div_ps(a, b); }
inline F f_fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F f_fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
inline F f_min(F a, F b) { return _mm256_min_ps(a, b); }
inline F f_max(F a, F b) { return _mm256_max_ps(a, b); }
inline F f_abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline F f_copysign(F a, F s) {
  const F sign = _mm256_set1_ps(-0.0f);
  return _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, s));
}
inline F f_select_lt(F a, F b, F x, F y) { return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
inline float f_sum(F a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float f_hmax(F a) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
inline F f_round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline F f_scale2(F a, F n) {
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half);
  const F low = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const F high = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(a, low), high);
}

inline float half_to_float(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
inline uint16_t float_to_half(float x) {
  return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
}
inline F f_load_f16(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline void f_store_f16(uint8_t* p, F a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
inline F f_load_bf16(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline F f_load_i8(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline void f_store_i8(int8_t* p, F a) {
  const __m256i wide = _mm256_cvtps_epi32(a);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}

// --- integer dot products -------------------------------------------------------------------------------------------

struct S8 {
  __m256 v;
};
struct S16 {
  __m256 low, high;
};

inline S8 s8_load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline void s8_store(float* p, S8 s) { _mm256_storeu_ps(p, s.v); }
inline S16 s16_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void s16_store(float* p, S16 s) {
  _mm256_storeu_ps(p, s.low);
  _mm256_storeu_ps(p + 8, s.high);
}
inline S8 s_mul(S8 a, S8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline S16 s_mul(S16 a, S8 b) {
  const __m256 low = _mm256_permutevar8x32_ps(b.v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
  const __m256 high = _mm256_permutevar8x32_ps(b.v, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7));
  return {_mm256_mul_ps(a.low, low), _mm256_mul_ps(a.high, high)};
}
inline F spread(S8 s, int step) { return _mm256_permutevar8x32_ps(s.v, _mm256_set1_epi32(step)); }
inline F spread(S16 s, int step) {
  const int first = 2 * (step & 3);
  const int second = first + 1;
  const __m256i lanes = _mm256_setr_epi32(first, first, first, first, second, second, second, second);
  return _mm256_permutevar8x32_ps(step < 4 ? s.low : s.high, lanes);
}

inline B b_load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void b_store(void* p, B b) { _mm256_storeu_si256(static_cast<__m256i*>(p), b); }

// The dot product of biased weights starts from minus the bias times the sum of the activations.
inline I dot_start(B x, int bias) {
  return _mm256_sub_epi32(_mm256_setzero_si256(),
                          byte_dot(_mm256_setzero_si256(), _mm256_set1_epi8(static_cast<char>(bias)), x));
}
template <bool kSigned>
inline I step_dot(B w, B x, I start) {
  if constexpr (kSigned) return byte_dot(start, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  return byte_dot(start, w, x);
}
template <bool kSigned, typename S>
inline F scaled_dot(F acc, B w, B x, I start, S s, int step) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(step_dot<kSigned>(w, x, start)), spread(s, step), acc);
}
inline F sub_mins(F acc, S8 m, S8 x_sum) { return _mm256_fnmadd_ps(m.v, x_sum.v, acc); }
inline F quad_sums(B x, S8 x_scale, int step) {
  const I sums = byte_dot(_mm256_setzero_si256(), _mm256_set1_epi8(1), x);
  return _mm256_mul_ps(_mm256_cvtepi32_ps(sums), spread(x_scale, step));
}
inline F sub_mins16(F acc, S16 m, F sums, int step) { return _mm256_fnmadd_ps(spread(m, step), sums, acc); }

// Sums of products and nothing else, to measure what registers allow. hide() makes the compiler think that b changes.
using DotSum = I;
inline DotSum dot_add(DotSum sum, B w, B x) { return byte_dot(sum, w, x); }
inline void hide(B& b) { __asm__ volatile("" : "+x"(b)); }

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace les
