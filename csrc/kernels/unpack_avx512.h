// Unpacking for AVX-512: 64 weights a step, unsigned or biased to be so.
#pragma once

#include "kernels/unpack_scalar.h"
#include "kernels/unpack_x86.h"

namespace les {
namespace {

inline __m128i load_128(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline __m256i load_256(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
// 32 bytes twice, and two times 32 bytes.
inline B twice_256(const uint8_t* p) { return _mm512_broadcast_i64x4(load_256(p)); }
inline B join_256(__m256i low, __m256i high) { return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1); }
inline B and_512(B a, int byte) { return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(byte))); }
// Shifts 64-bit lanes of the lower and the upper half differently; bits cross bytes, so a mask follows.
inline B shift_halves(B a, int low, int high) {
  return _mm512_srlv_epi64(a, _mm512_setr_epi64(low, low, low, low, high, high, high, high));
}
inline B and_halves(B a, int low, int high) {
  const B mask = _mm512_mask_blend_epi64(0xf0, _mm512_set1_epi8(static_cast<char>(low)),
                                         _mm512_set1_epi8(static_cast<char>(high)));
  return _mm512_and_si512(a, mask);
}
// (a & mask) | b.
inline B and_or(B a, int mask, B b) {
  return _mm512_ternarylogic_epi64(a, _mm512_set1_epi8(static_cast<char>(mask)), b, 0xea);
}

// Two blocks of 16 bytes, each: 16 low nibbles, then 16 high nibbles.
inline B nibbles_of_two(const uint8_t* a, const uint8_t* b) {
  const B pairs = join_256(_mm256_broadcastsi128_si256(load_128(a)), _mm256_broadcastsi128_si256(load_128(b)));
  return and_512(_mm512_srlv_epi64(pairs, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)), 15);
}
inline B look_up(__m128i table, B index) { return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), index); }

inline __m128i iq4_table() {
  return _mm_xor_si128(load_128(reinterpret_cast<const uint8_t*>(kIq4Values)), _mm_set1_epi8(-128));
}
inline __m128i fp4_table() {
  return _mm_add_epi8(load_128(reinterpret_cast<const uint8_t*>(kFp4Values)), _mm_set1_epi8(12));
}

template <int kBlockOf, int kBytesOf, Form kFormOf, int kBiasOf, Mins kMinsOf>
struct Layout {
  static constexpr int kBlock = kBlockOf;
  static constexpr size_t kBlockBytes = kBytesOf;
  static constexpr Form kForm = kFormOf;
  static constexpr int kBias = kBiasOf;
  static constexpr Mins kMins = kMinsOf;
};

struct FastQ8_0 : Layout<32, 34, Form::kBiased, 128, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastQ8_0 open(const uint8_t* p) { return {{}, p, {half_scales<34>(p)}}; }
  inline B step(int j) const {
    const uint8_t* at = p + 68 * j;
    return _mm512_xor_si512(join_256(load_256(at + 2), load_256(at + 36)), _mm512_set1_epi8(-128));
  }
};

struct FastQ4_0 : Layout<32, 18, Form::kBiased, 8, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastQ4_0 open(const uint8_t* p) { return {{}, p, {half_scales<18>(p)}}; }
  inline B step(int j) const { return nibbles_of_two(p + 36 * j + 2, p + 36 * j + 20); }
};

struct FastQ4_1 : Layout<32, 20, Form::kUnsigned, 0, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ4_1 open(const uint8_t* p) {
    return {{}, p, {half_scales<20>(p)}, {negate(half_scales<20>(p + 2))}};
  }
  inline B step(int j) const { return nibbles_of_two(p + 40 * j + 4, p + 40 * j + 24); }
};

inline B add_high_bits(B low, const uint8_t* a, const uint8_t* b, int value) {
  const __mmask64 bits = load_u32(a) | static_cast<uint64_t>(load_u32(b)) << 32;
  return _mm512_mask_add_epi8(low, bits, low, _mm512_set1_epi8(static_cast<char>(value)));
}

struct FastQ5_0 : Layout<32, 22, Form::kBiased, 16, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastQ5_0 open(const uint8_t* p) { return {{}, p, {half_scales<22>(p)}}; }
  inline B step(int j) const {
    const uint8_t* at = p + 44 * j;
    return add_high_bits(nibbles_of_two(at + 6, at + 28), at + 2, at + 24, 16);
  }
};

struct FastQ5_1 : Layout<32, 24, Form::kUnsigned, 0, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ5_1 open(const uint8_t* p) {
    return {{}, p, {half_scales<24>(p)}, {negate(half_scales<24>(p + 2))}};
  }
  inline B step(int j) const {
    const uint8_t* at = p + 48 * j;
    return add_high_bits(nibbles_of_two(at + 8, at + 32), at + 4, at + 28, 16);
  }
};

struct FastIQ4_NL : Layout<32, 18, Form::kBiased, 128, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastIQ4_NL open(const uint8_t* p) { return {{}, p, {half_scales<18>(p)}}; }
  inline B step(int j) const { return look_up(iq4_table(), nibbles_of_two(p + 36 * j + 2, p + 36 * j + 20)); }
};

struct FastMXFP4 : Layout<32, 17, Form::kBiased, 12, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastMXFP4 open(const uint8_t* p) { return {{}, p, {e8m0_scales<17>(p)}}; }
  inline B step(int j) const { return look_up(fp4_table(), nibbles_of_two(p + 34 * j + 1, p + 34 * j + 18)); }
};

struct FastNVFP4 : Layout<64, 36, Form::kBiased, 12, Mins::kNone> {
  const uint8_t* p;
  S16 scale;
  static inline FastNVFP4 open(const uint8_t* p) {
    const __m128i bytes = _mm_setr_epi32(static_cast<int>(load_u32(p)), static_cast<int>(load_u32(p + 36)),
                                         static_cast<int>(load_u32(p + 72)), static_cast<int>(load_u32(p + 108)));
    // Exponent and mantissa as a float's, halved as the code book asks for; without exponent there is no leading one.
    const __m512i wide = _mm512_cvtepu8_epi32(bytes);
    const __m512i exponent_mantissa = _mm512_and_si512(wide, _mm512_set1_epi32(0x7f));
    const __m512i shifted = _mm512_slli_epi32(exponent_mantissa, 20);
    const F normal = _mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(119 << 23)));
    const F small = _mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(120 << 23)));
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(exponent_mantissa, _mm512_set1_epi32(8));
    const F value = _mm512_mask_sub_ps(normal, is_small, small, _mm512_set1_ps(0x1p-7f));
    const __mmask16 is_number = _mm512_cmpneq_epi32_mask(wide, _mm512_set1_epi32(0x7f));
    return {{}, p, {_mm512_maskz_mov_ps(is_number, value)}};
  }
  inline B step(int j) const {
    const B eights = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3),
                                              _mm512_castsi256_si512(load_256(p + 36 * j + 4)));
    return look_up(fp4_table(), and_512(_mm512_srlv_epi64(eights, _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4)), 15));
  }
};

// The 2-bit layout of Q2_K, Q3_K and TQ2_0: 32 bytes hold four groups of 32 weights.
inline B two_bits(const uint8_t* p, int j) {
  const B bytes = twice_256(p + 32 * (j / 2));
  return and_512(j % 2 == 0 ? shift_halves(bytes, 0, 2) : shift_halves(bytes, 4, 6), 3);
}

struct FastQ2_K : Layout<256, 84, Form::kUnsigned, 0, Mins::kPer16> {
  const uint8_t* p;
  S16 scale, min;
  static inline FastQ2_K open(const uint8_t* p) {
    const HalfPair d = half_pair(p + 80);
    const __m512i wide = _mm512_cvtepu8_epi32(load_128(p));
    const F scales = _mm512_cvtepi32_ps(_mm512_and_si512(wide, _mm512_set1_epi32(15)));
    const F mins = _mm512_cvtepi32_ps(_mm512_srli_epi32(wide, 4));
    const F shifts = _mm512_setr_ps(1, 1, 1 / 4.0f, 1 / 4.0f, 1 / 16.0f, 1 / 16.0f, 1 / 64.0f, 1 / 64.0f,  //
                                    1, 1, 1 / 4.0f, 1 / 4.0f, 1 / 16.0f, 1 / 16.0f, 1 / 64.0f, 1 / 64.0f);
    return {
        {}, p, {_mm512_mul_ps(_mm512_mul_ps(scales, f_set(d.first)), shifts)}, {_mm512_mul_ps(mins, f_set(d.second))}};
  }
  // Bits stay where they are, and the scale makes up for it.
  inline B step(int j) const {
    const B bytes = twice_256(p + 16 + 32 * (j / 2));
    return j % 2 == 0 ? and_halves(bytes, 3, 3 << 2) : and_halves(bytes, 3 << 4, 3 << 6);
  }
};

// The groups of step j are the bits 2 j and 2 j + 1 of 32 bytes.
inline __mmask64 bit_plane(const uint8_t* p, int j) {
  const B low = _mm512_set1_epi8(static_cast<char>(1 << (2 * j)));
  const B high = _mm512_set1_epi8(static_cast<char>(2 << (2 * j)));
  return _mm512_test_epi8_mask(twice_256(p), _mm512_mask_blend_epi64(0xf0, low, high));
}
inline B add_plane(B low, const uint8_t* p, int j, int value) {
  return _mm512_mask_add_epi8(low, bit_plane(p, j), low, _mm512_set1_epi8(static_cast<char>(value)));
}

struct FastQ3_K : Layout<256, 110, Form::kBiased, 4, Mins::kNone> {
  const uint8_t* p;
  S16 scale;
  static inline FastQ3_K open(const uint8_t* p) {
    const F scales = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q3_k_scales(p + 96)));
    return {{}, p, {_mm512_mul_ps(scales, f_set(load_half(p + 108)))}};
  }
  inline B step(int j) const { return add_plane(two_bits(p + 32, j), p, j, 4); }
};

struct FastQ4_K : Layout<256, 144, Form::kUnsigned, 0, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ4_K open(const uint8_t* p) {
    const KScales s = k_scales(p);
    return {{},
            p,
            {_mm256_mul_ps(s.scale, _mm256_setr_ps(1, 1 / 16.0f, 1, 1 / 16.0f, 1, 1 / 16.0f, 1, 1 / 16.0f))},
            {s.min}};
  }
  // High nibbles stay where they are: sixteen times the weight, and the scale a sixteenth.
  inline B step(int j) const { return and_halves(twice_256(p + 16 + 32 * j), 15, 15 << 4); }
};

struct FastQ5_K : Layout<256, 176, Form::kUnsigned, 0, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ5_K open(const uint8_t* p) {
    const KScales s = k_scales(p);
    return {{}, p, {s.scale}, {s.min}};
  }
  inline B step(int j) const {
    return add_plane(and_512(shift_halves(twice_256(p + 48 + 32 * j), 0, 4), 15), p + 16, j, 16);
  }
};

struct FastQ6_K : Layout<256, 210, Form::kBiased, 32, Mins::kNone> {
  const uint8_t* p;
  S16 scale;
  static inline FastQ6_K open(const uint8_t* p) {
    const F scales = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_128(p + 192)));
    return {{}, p, {_mm512_mul_ps(scales, f_set(load_half(p + 208)))}};
  }
  inline B step(int j) const {
    const B low = b_load(p + 64 * (j / 2));
    const B high = twice_256(p + 128 + 32 * (j / 2));
    if (j % 2 == 0) {
      const B bits = _mm512_sllv_epi64(high, _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2));
      return and_or(bits, 0x30, and_512(low, 15));
    }
    return and_or(shift_halves(high, 0, 2), 0x30, and_512(_mm512_srli_epi16(low, 4), 15));
  }
};

struct FastIQ4_XS : Layout<256, 136, Form::kBiased, 128, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastIQ4_XS open(const uint8_t* p) { return {{}, p, {iq4_xs_scales(p)}}; }
  inline B step(int j) const { return look_up(iq4_table(), nibbles_of_two(p + 8 + 32 * j, p + 24 + 32 * j)); }
};

struct FastTQ2_0 : Layout<256, 66, Form::kBiased, 1, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastTQ2_0 open(const uint8_t* p) { return {{}, p, {_mm256_set1_ps(load_half(p + 64))}}; }
  inline B step(int j) const { return two_bits(p, j); }
};

}  // namespace
}  // namespace les
