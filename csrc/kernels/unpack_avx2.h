// Unpacking for AVX2: 32 weights a step. Unsigned bytes stay at or below 128; wider types are signed.
#pragma once

#include "kernels/unpack_scalar.h"
#include "kernels/unpack_x86.h"

namespace les {
namespace {

inline __m128i load_128(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline B and_256(B a, int byte) { return _mm256_and_si256(a, _mm256_set1_epi8(static_cast<char>(byte))); }
// 16 bytes: 16 low nibbles, then 16 high nibbles.
inline B nibbles_of(const uint8_t* p) {
  const __m128i bytes = load_128(p);
  return and_256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes), 15);
}
inline B look_up(const int8_t* table, B index) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_128(reinterpret_cast<const uint8_t*>(table))), index);
}
// 32 bits to 32 bytes of `value` or zero.
inline B spread_bits(uint32_t bits, int value) {
  const __m256i order = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i selected = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), order),
                                            _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull)));
  return _mm256_andnot_si256(_mm256_cmpeq_epi8(selected, _mm256_setzero_si256()),
                             _mm256_set1_epi8(static_cast<char>(value)));
}
// Bit j of 32 bytes to `value` or zero.
inline B spread_plane(const uint8_t* p, int j, int value) {
  const B selected = and_256(b_load(p), 1 << j);
  return _mm256_andnot_si256(_mm256_cmpeq_epi8(selected, _mm256_setzero_si256()),
                             _mm256_set1_epi8(static_cast<char>(value)));
}

template <int kBlockOf, int kBytesOf, Form kFormOf, int kBiasOf, Mins kMinsOf>
struct Layout {
  static constexpr int kBlock = kBlockOf;
  static constexpr size_t kBlockBytes = kBytesOf;
  static constexpr Form kForm = kFormOf;
  static constexpr int kBias = kBiasOf;
  static constexpr Mins kMins = kMinsOf;
};

struct FastQ8_0 : Layout<32, 34, Form::kSigned, 0, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastQ8_0 open(const uint8_t* p) { return {{}, p, {half_scales<34>(p)}}; }
  inline B step(int j) const { return b_load(p + 34 * j + 2); }
};

struct FastQ4_0 : Layout<32, 18, Form::kBiased, 8, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastQ4_0 open(const uint8_t* p) { return {{}, p, {half_scales<18>(p)}}; }
  inline B step(int j) const { return nibbles_of(p + 18 * j + 2); }
};

struct FastQ4_1 : Layout<32, 20, Form::kUnsigned, 0, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ4_1 open(const uint8_t* p) {
    return {{}, p, {half_scales<20>(p)}, {negate(half_scales<20>(p + 2))}};
  }
  inline B step(int j) const { return nibbles_of(p + 20 * j + 4); }
};

struct FastQ5_0 : Layout<32, 22, Form::kBiased, 16, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastQ5_0 open(const uint8_t* p) { return {{}, p, {half_scales<22>(p)}}; }
  inline B step(int j) const {
    const uint8_t* at = p + 22 * j;
    return _mm256_or_si256(nibbles_of(at + 6), spread_bits(load_u32(at + 2), 16));
  }
};

struct FastQ5_1 : Layout<32, 24, Form::kUnsigned, 0, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ5_1 open(const uint8_t* p) {
    return {{}, p, {half_scales<24>(p)}, {negate(half_scales<24>(p + 2))}};
  }
  inline B step(int j) const {
    const uint8_t* at = p + 24 * j;
    return _mm256_or_si256(nibbles_of(at + 8), spread_bits(load_u32(at + 4), 16));
  }
};

struct FastIQ4_NL : Layout<32, 18, Form::kSigned, 0, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastIQ4_NL open(const uint8_t* p) { return {{}, p, {half_scales<18>(p)}}; }
  inline B step(int j) const { return look_up(kIq4Values, nibbles_of(p + 18 * j + 2)); }
};

struct FastMXFP4 : Layout<32, 17, Form::kSigned, 0, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastMXFP4 open(const uint8_t* p) { return {{}, p, {e8m0_scales<17>(p)}}; }
  inline B step(int j) const { return look_up(kFp4Values, nibbles_of(p + 17 * j + 1)); }
};

// The 2-bit layout of Q2_K, Q3_K and TQ2_0: 32 bytes hold four groups of 32 weights.
inline B two_bits(const uint8_t* p, int j) {
  return and_256(_mm256_srli_epi16(b_load(p + 32 * (j / 4)), 2 * (j % 4)), 3);
}
// The 4-bit layout of Q4_K and Q5_K: 32 bytes hold two groups.
inline B four_bits(const uint8_t* p, int j) {
  return and_256(_mm256_srli_epi16(b_load(p + 32 * (j / 2)), 4 * (j % 2)), 15);
}

inline S16 scales_from_bytes(__m128i bytes, float d) {
  const __m256 factor = _mm256_set1_ps(d);
  const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
  return {_mm256_mul_ps(low, factor), _mm256_mul_ps(high, factor)};
}

struct FastQ2_K : Layout<256, 84, Form::kUnsigned, 0, Mins::kPer16> {
  const uint8_t* p;
  S16 scale, min;
  static inline FastQ2_K open(const uint8_t* p) {
    const HalfPair d = half_pair(p + 80);
    const __m128i nibble = _mm_set1_epi8(15);
    const __m128i bytes = load_128(p);
    return {{},
            p,
            scales_from_bytes(_mm_and_si128(bytes, nibble), d.first),
            scales_from_bytes(_mm_and_si128(_mm_srli_epi16(bytes, 4), nibble), d.second)};
  }
  inline B step(int j) const { return two_bits(p + 16, j); }
};

struct FastQ3_K : Layout<256, 110, Form::kBiased, 4, Mins::kNone> {
  const uint8_t* p;
  S16 scale;
  static inline FastQ3_K open(const uint8_t* p) {
    return {{}, p, scales_from_bytes(q3_k_scales(p + 96), load_half(p + 108))};
  }
  inline B step(int j) const { return _mm256_or_si256(two_bits(p + 32, j), spread_plane(p, j, 4)); }
};

struct FastQ4_K : Layout<256, 144, Form::kUnsigned, 0, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ4_K open(const uint8_t* p) {
    const KScales s = k_scales(p);
    return {{}, p, {s.scale}, {s.min}};
  }
  inline B step(int j) const { return four_bits(p + 16, j); }
};

struct FastQ5_K : Layout<256, 176, Form::kUnsigned, 0, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ5_K open(const uint8_t* p) {
    const KScales s = k_scales(p);
    return {{}, p, {s.scale}, {s.min}};
  }
  inline B step(int j) const { return _mm256_or_si256(four_bits(p + 48, j), spread_plane(p + 16, j, 16)); }
};

struct FastQ6_K : Layout<256, 210, Form::kBiased, 32, Mins::kNone> {
  const uint8_t* p;
  S16 scale;
  static inline FastQ6_K open(const uint8_t* p) {
    return {{}, p, scales_from_bytes(load_128(p + 192), load_half(p + 208))};
  }
  inline B step(int j) const {
    const B low = and_256(_mm256_srli_epi16(b_load(p + 64 * (j / 4) + 32 * (j % 2)), 4 * (j % 4 / 2)), 15);
    const B high = and_256(_mm256_srli_epi16(b_load(p + 128 + 32 * (j / 4)), 2 * (j % 4)), 3);
    return _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
  }
};

struct FastIQ4_XS : Layout<256, 136, Form::kSigned, 0, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastIQ4_XS open(const uint8_t* p) { return {{}, p, {iq4_xs_scales(p)}}; }
  inline B step(int j) const { return look_up(kIq4Values, nibbles_of(p + 8 + 16 * j)); }
};

struct FastTQ2_0 : Layout<256, 66, Form::kBiased, 1, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastTQ2_0 open(const uint8_t* p) { return {{}, p, {_mm256_set1_ps(load_half(p + 64))}}; }
  inline B step(int j) const { return two_bits(p, j); }
};

struct FastNVFP4 : Layout<64, 36, Form::kSigned, 0, Mins::kNone> {
  const uint8_t* p;
  S16 scale;
  static inline __m256 half_scales_of(const uint8_t* a, const uint8_t* b) {
    // Exponent and mantissa as a float's, halved as the code book asks for; without exponent there is no leading one.
    const __m256i wide =
        _mm256_cvtepu8_epi32(_mm_setr_epi32(static_cast<int>(load_u32(a)), static_cast<int>(load_u32(b)), 0, 0));
    const __m256i exponent_mantissa = _mm256_and_si256(wide, _mm256_set1_epi32(0x7f));
    const __m256i shifted = _mm256_slli_epi32(exponent_mantissa, 20);
    const __m256 normal = _mm256_castsi256_ps(_mm256_add_epi32(shifted, _mm256_set1_epi32(119 << 23)));
    const __m256 small = _mm256_castsi256_ps(_mm256_add_epi32(shifted, _mm256_set1_epi32(120 << 23)));
    const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), exponent_mantissa);
    const __m256 value =
        _mm256_blendv_ps(normal, _mm256_sub_ps(small, _mm256_set1_ps(0x1p-7f)), _mm256_castsi256_ps(is_small));
    const __m256i is_nan = _mm256_cmpeq_epi32(wide, _mm256_set1_epi32(0x7f));
    return _mm256_andnot_ps(_mm256_castsi256_ps(is_nan), value);
  }
  static inline FastNVFP4 open(const uint8_t* p) {
    return {{}, p, {half_scales_of(p, p + 36), half_scales_of(p + 72, p + 108)}};
  }
  inline B step(int j) const {
    const __m128i bytes = load_128(p + 36 * (j / 2) + 4 + 16 * (j % 2));
    const __m128i high = _mm_srli_epi16(bytes, 4);
    const B eights = _mm256_set_m128i(_mm_unpackhi_epi64(bytes, high), _mm_unpacklo_epi64(bytes, high));
    return look_up(kFp4Values, and_256(eights, 15));
  }
};

}  // namespace
}  // namespace les
