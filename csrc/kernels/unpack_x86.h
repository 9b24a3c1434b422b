// Scales of the block formats in 256-bit registers, shared by AVX2 and AVX-512.
#pragma once

#include <immintrin.h>

#include "kernels/unpack_scalar.h"

namespace les {
namespace {

inline __m256 negate(__m256 a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }

// Eight halves, kStride bytes apart.
template <int kStride>
inline __m256 half_scales(const uint8_t* p) {
  __m128i halves = _mm_cvtsi32_si128(load_u16(p));
  halves = _mm_insert_epi16(halves, load_u16(p + kStride), 1);
  halves = _mm_insert_epi16(halves, load_u16(p + 2 * kStride), 2);
  halves = _mm_insert_epi16(halves, load_u16(p + 3 * kStride), 3);
  __m128i upper = _mm_cvtsi32_si128(load_u16(p + 4 * kStride));
  upper = _mm_insert_epi16(upper, load_u16(p + 5 * kStride), 1);
  upper = _mm_insert_epi16(upper, load_u16(p + 6 * kStride), 2);
  upper = _mm_insert_epi16(upper, load_u16(p + 7 * kStride), 3);
  return _mm256_cvtph_ps(_mm_unpacklo_epi64(halves, upper));
}

// Half of 2^(e - 127) for eight bytes e, kStride bytes apart.
template <int kStride>
inline __m256 e8m0_scales(const uint8_t* p) {
  uint64_t bytes = 0;
  for (int i = 0; i < 8; ++i) bytes |= static_cast<uint64_t>(p[i * kStride]) << (8 * i);
  const __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes)));
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, denormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

struct HalfPair {
  float first, second;
};
inline HalfPair half_pair(const uint8_t* p) {
  const __m128 both = _mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(load_u32(p))));
  return {_mm_cvtss_f32(both), _mm_cvtss_f32(_mm_movehdup_ps(both))};
}

inline __m256 bytes_to_float(uint32_t low, uint32_t high) {
  const uint64_t bytes = low | static_cast<uint64_t>(high) << 32;
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes))));
}

// Of Q4_K and Q5_K: two halves, then 6-bit scales and minima in 12 bytes.
struct KScales {
  __m256 scale, min;
};
inline KScales k_scales(const uint8_t* p) {
  const HalfPair d = half_pair(p);
  const uint32_t a = load_u32(p + 4);
  const uint32_t b = load_u32(p + 8);
  const uint32_t c = load_u32(p + 12);
  const __m256 scales = bytes_to_float(a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u));
  const __m256 mins = bytes_to_float(b & 0x3f3f3f3fu, (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u));
  return {_mm256_mul_ps(scales, _mm256_set1_ps(d.first)), _mm256_mul_ps(mins, _mm256_set1_ps(d.second))};
}

// Of Q3_K: sixteen signed bytes from 12.
inline __m128i q3_k_scales(const uint8_t* p) {
  const uint32_t a = load_u32(p);
  const uint32_t b = load_u32(p + 4);
  const uint32_t c = load_u32(p + 8);
  const uint32_t s0 = (a & 0x0f0f0f0fu) | (c << 4 & 0x30303030u);
  const uint32_t s1 = (b & 0x0f0f0f0fu) | (c << 2 & 0x30303030u);
  const uint32_t s2 = (a >> 4 & 0x0f0f0f0fu) | (c & 0x30303030u);
  const uint32_t s3 = (b >> 4 & 0x0f0f0f0fu) | (c >> 2 & 0x30303030u);
  const __m128i packed =
      _mm_setr_epi32(static_cast<int>(s0), static_cast<int>(s1), static_cast<int>(s2), static_cast<int>(s3));
  return _mm_sub_epi8(packed, _mm_set1_epi8(32));
}

inline __m256 iq4_xs_scales(const uint8_t* p) {
  const __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(load_u32(p + 4))),
                                        _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
  const __m256i high =
      _mm256_srlv_epi32(_mm256_set1_epi32(load_u16(p + 2)), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
  const __m256i bits = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)),
                                       _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
  const __m256 scales = _mm256_cvtepi32_ps(_mm256_sub_epi32(bits, _mm256_set1_epi32(32)));
  return _mm256_mul_ps(scales, _mm256_set1_ps(load_half(p)));
}

}  // namespace
}  // namespace les
