// The types with code books of points for AVX2 and AVX-512: indices and signs of a unit by vectors, points by loads.
#pragma once

#include "kernels/unpack_iq_scalar.h"
#include "kernels/unpack_x86.h"

namespace les {
namespace {

// A unit's indices into a grid, and a sign bit for each weight in order.
template <int kPoints>
struct Points {
  alignas(64) uint16_t index[kPoints];
  alignas(32) uint32_t signs[8];
};

inline __m256i load_ymm(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void store_ymm(void* p, __m256i a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }
inline __m256i widen_bytes(const uint8_t* p) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Bytes of seven bits get an eighth that makes their number of ones even.
inline __m256i even_sign_bytes(__m256i bits) {
  __m256i parity = _mm256_xor_si256(bits, _mm256_srli_epi16(bits, 4));
  parity = _mm256_xor_si256(parity, _mm256_srli_epi16(parity, 2));
  parity = _mm256_xor_si256(parity, _mm256_srli_epi16(parity, 1));
  return _mm256_or_si256(bits, _mm256_and_si256(_mm256_slli_epi16(parity, 7), _mm256_set1_epi8(-128)));
}

// Eight words, each four times seven bits and a scale in the top four.
inline __m256i even_sign_words(__m256i words) {
  const __m256i a = _mm256_and_si256(words, _mm256_set1_epi32(0x7f));
  const __m256i b = _mm256_and_si256(_mm256_slli_epi32(words, 1), _mm256_set1_epi32(0x7f00));
  const __m256i c = _mm256_and_si256(_mm256_slli_epi32(words, 2), _mm256_set1_epi32(0x7f0000));
  const __m256i d = _mm256_and_si256(_mm256_slli_epi32(words, 3), _mm256_set1_epi32(0x7f000000));
  return even_sign_bytes(_mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d)));
}

// factor * (2 n + 1).
inline __m256 odd_scales(__m256i n, float factor) {
  const __m256i odd = _mm256_add_epi32(_mm256_add_epi32(n, n), _mm256_set1_epi32(1));
  return _mm256_mul_ps(_mm256_cvtepi32_ps(odd), _mm256_set1_ps(factor));
}
inline __m256 top_scales(__m256i words, float factor) { return odd_scales(_mm256_srli_epi32(words, 28), factor); }

// The nibbles of four bytes, lower first.
inline __m256i eight_nibbles(uint32_t bytes) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(bytes));
  return _mm256_and_si256(_mm256_srlv_epi32(all, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)),
                          _mm256_set1_epi32(15));
}

inline S8 decode_iq2_xxs(const uint8_t* p, Points<32>& out) {
  const __m256i a = load_ymm(p + 2);
  const __m256i b = load_ymm(p + 34);
  // Of eight pairs of words the first are four indices each, the second signs and scale.
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  const __m256i a_split = _mm256_permutevar8x32_epi32(a, order);
  const __m256i b_split = _mm256_permutevar8x32_epi32(b, order);
  const __m256i words = _mm256_permute2x128_si256(a_split, b_split, 0x31);
  store_ymm(out.index, _mm256_cvtepu8_epi16(_mm256_castsi256_si128(a_split)));
  store_ymm(out.index + 16, _mm256_cvtepu8_epi16(_mm256_castsi256_si128(b_split)));
  store_ymm(out.signs, even_sign_words(words));
  return {top_scales(words, load_half(p) * 0.125f)};
}

inline S16 nibble_scales_16(const uint8_t* p, float factor) {
  float scales[16];
  _mm256_storeu_ps(scales, odd_scales(eight_nibbles(load_u32(p)), factor));
  _mm256_storeu_ps(scales + 8, odd_scales(eight_nibbles(load_u32(p + 4)), factor));
  return s16_load(scales);
}

inline S16 decode_iq2_xs(const uint8_t* p, Points<32>& out) {
  const __m256i a = load_ymm(p + 2);
  const __m256i b = load_ymm(p + 34);
  const __m256i low = _mm256_set1_epi16(511);
  store_ymm(out.index, _mm256_and_si256(a, low));
  store_ymm(out.index + 16, _mm256_and_si256(b, low));
  const __m256i packed = _mm256_packus_epi16(_mm256_srli_epi16(a, 9), _mm256_srli_epi16(b, 9));
  store_ymm(out.signs, even_sign_bytes(_mm256_permute4x64_epi64(packed, 0xd8)));
  return nibble_scales_16(p + 66, load_half(p) * 0.125f);
}

// Two bits for each of 16 indices from four bytes: bits 8 and 9.
inline __m256i two_high_bits(const uint8_t* p) {
  const __m256i order = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1,  //
                                         2, -1, 2, -1, 2, -1, 2, -1, 3, -1, 3, -1, 3, -1, 3, -1);
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(load_u32(p))), order);
  const __m256i shifted = _mm256_mullo_epi16(bytes, _mm256_set1_epi64x(0x0004001000400100));
  return _mm256_and_si256(shifted, _mm256_set1_epi16(0x300));
}

inline S16 decode_iq2_s(const uint8_t* p, Points<32>& out) {
  store_ymm(out.index, _mm256_or_si256(widen_bytes(p + 2), two_high_bits(p + 66)));
  store_ymm(out.index + 16, _mm256_or_si256(widen_bytes(p + 18), two_high_bits(p + 70)));
  store_ymm(out.signs, load_ymm(p + 34));
  return nibble_scales_16(p + 74, load_half(p) * 0.125f);
}

inline S8 decode_iq3_xxs(const uint8_t* p, Points<64>& out) {
  for (int i = 0; i < 4; ++i) store_ymm(out.index + 16 * i, widen_bytes(p + 2 + 16 * i));
  const __m256i words = load_ymm(p + 66);
  store_ymm(out.signs, even_sign_words(words));
  return {top_scales(words, load_half(p) * 0.25f)};
}

// Bit 8 of 16 indices.
inline __m256i one_high_bit(uint16_t bits) {
  const __m256i select =
      _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
  const __m256i selected = _mm256_and_si256(_mm256_set1_epi16(static_cast<short>(bits)), select);
  return _mm256_and_si256(_mm256_cmpeq_epi16(selected, select), _mm256_set1_epi16(256));
}

inline S8 decode_iq3_s(const uint8_t* p, Points<64>& out) {
  for (int i = 0; i < 4; ++i) {
    store_ymm(out.index + 16 * i, _mm256_or_si256(widen_bytes(p + 2 + 16 * i), one_high_bit(load_u16(p + 66 + 2 * i))));
  }
  store_ymm(out.signs, load_ymm(p + 74));
  return {odd_scales(eight_nibbles(load_u32(p + 106)), load_half(p))};
}

// Bits 8 to 10 of 16 indices: three bits each, from the lowest, of the word of their group, which is there four times.
inline __m256i three_high_bits(__m128i pairs) {
  const __m256i words = _mm256_set_m128i(_mm_unpackhi_epi32(pairs, pairs), _mm_unpacklo_epi32(pairs, pairs));
  const __m256i first = _mm256_mullo_epi16(words, _mm256_set1_epi64x(0x0000000400200100));  // left by 8, 5 and 2
  return _mm256_and_si256(_mm256_blend_epi16(first, _mm256_srli_epi16(words, 1), 0x88), _mm256_set1_epi16(0x700));
}

// The IQ1 types have no signs but shifts: of eight weights at once, up or down.
template <int kPoints>
struct ShiftedPoints {
  alignas(64) uint16_t index[kPoints];
  alignas(32) int8_t shift[kPoints];  // bias + 1 or bias - 1
};
constexpr int kIq1Bias = 9;

inline S8 decode_iq1_s(const uint8_t* p, ShiftedPoints<32>& out) {
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 34));
  store_ymm(out.index, _mm256_or_si256(widen_bytes(p + 2), three_high_bits(_mm_unpacklo_epi16(high, high))));
  store_ymm(out.index + 16, _mm256_or_si256(widen_bytes(p + 18), three_high_bits(_mm_unpackhi_epi16(high, high))));
  const __m256i words = _mm256_cvtepu16_epi32(high);
  const __m256i is_down = _mm256_srai_epi32(_mm256_slli_epi32(words, 16), 31);
  store_ymm(out.shift,
            _mm256_add_epi8(_mm256_and_si256(is_down, _mm256_set1_epi8(-2)), _mm256_set1_epi8(kIq1Bias + 1)));
  return {odd_scales(_mm256_and_si256(_mm256_srli_epi32(words, 12), _mm256_set1_epi32(7)), load_half(p) * 0.125f)};
}

inline S16 decode_iq1_m(const uint8_t* p, ShiftedPoints<32>& out) {
  // A nibble for each index: three high bits, and the shift.
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 32));
  const __m128i nibble = _mm_set1_epi8(15);
  const __m128i even = _mm_and_si128(high, nibble);
  const __m128i odd = _mm_and_si128(_mm_srli_epi16(high, 4), nibble);
  const __m256i nibbles = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
  const __m256i is_up = _mm256_cmpeq_epi8(_mm256_and_si256(nibbles, _mm256_set1_epi8(8)), _mm256_setzero_si256());
  store_ymm(out.shift, _mm256_add_epi8(_mm256_and_si256(is_up, _mm256_set1_epi8(2)), _mm256_set1_epi8(kIq1Bias - 1)));
  const __m256i bits = _mm256_and_si256(nibbles, _mm256_set1_epi8(7));
  const __m256i low_bits = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bits));
  const __m256i high_bits = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bits, 1));
  store_ymm(out.index, _mm256_or_si256(widen_bytes(p), _mm256_slli_epi16(low_bits, 8)));
  store_ymm(out.index + 16, _mm256_or_si256(widen_bytes(p + 16), _mm256_slli_epi16(high_bits, 8)));
  float scales[16];
  const float d = iq1_m_scale(p) * 0.125f;
  const __m256i shifts = _mm256_setr_epi32(0, 3, 6, 9, 16, 19, 22, 25);
  for (int i = 0; i < 2; ++i) {
    const __m256i words = _mm256_set1_epi32(static_cast<int>(load_u32(p + 48 + 4 * i)));
    const __m256i n = _mm256_and_si256(_mm256_srlv_epi32(words, shifts), _mm256_set1_epi32(7));
    _mm256_storeu_ps(scales + 8 * i, odd_scales(n, d));
  }
  return s16_load(scales);
}

// Points by plain loads: gathers are slow on AMD, and on Intel with the mitigation against data sampling.
inline __m256i four_points(const uint64_t* grid, const uint16_t* index) {
  return _mm256_setr_epi64x(static_cast<long long>(grid[index[0]]), static_cast<long long>(grid[index[1]]),
                            static_cast<long long>(grid[index[2]]), static_cast<long long>(grid[index[3]]));
}
inline long long point_pair(const uint32_t* grid, const uint16_t* index) {
  return static_cast<long long>(grid[index[0]] | static_cast<uint64_t>(grid[index[1]]) << 32);
}
inline __m256i eight_points(const uint32_t* grid, const uint16_t* index) {
  return _mm256_setr_epi64x(point_pair(grid, index), point_pair(grid, index + 2), point_pair(grid, index + 4),
                            point_pair(grid, index + 6));
}

}  // namespace
}  // namespace les
