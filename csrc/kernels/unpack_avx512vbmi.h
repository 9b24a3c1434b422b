// The types with code books for AVX-512 with VBMI and GFNI: points are looked up as codes of 16 bits in registers, and
// their digits spread to bytes.
#pragma once

#include "kernels/unpack_iq_avx512.h"

namespace les {
namespace {

inline B words_of(const uint16_t* table, int register_index) { return _mm512_loadu_si512(table + 32 * register_index); }

// table[index] for 32 indices below kSize.
template <int kSize>
inline B look_up_codes(const uint16_t* table, B index) {
  if constexpr (kSize == 64) {
    return _mm512_permutex2var_epi16(words_of(table, 0), index, words_of(table, 1));
  } else {
    const B low = look_up_codes<kSize / 2>(table, index);
    const B high = look_up_codes<kSize / 2>(table + kSize / 2, index);
    return _mm512_mask_blend_epi16(_mm512_test_epi16_mask(index, _mm512_set1_epi16(kSize / 2)), low, high);
  }
}

// The seven bits of every sign byte and their parity as the eighth; input bit 7 is ignored.
inline B with_parity(B bits) { return _mm512_gf2p8affine_epi64_epi8(bits, _mm512_set1_epi64(0x010204081020407f), 0); }
// The sign bytes of eight groups, whose words start at the given bit of 64.
inline __m256i signs_of_words(B words, int first_bit) {
  const long long shifts = 0x0000000015'0e'07'00 + 0x01010101ll * first_bit;
  return _mm512_cvtepi64_epi32(with_parity(_mm512_multishift_epi64_epi8(_mm512_set1_epi64(shifts), words)));
}

constexpr int kGridBias = 64;

// 64 biased bytes that repeat; VPERMB takes six bits of its index, so digits need no mask.
struct ValueTable {
  alignas(64) uint8_t biased[64];
};
template <int kDigits>
constexpr ValueTable value_table(const uint8_t (&values)[kDigits]) {
  ValueTable table = {};
  for (int i = 0; i < 64; ++i) table.biased[i] = static_cast<uint8_t>(kGridBias + values[i % kDigits]);
  return table;
}
constexpr ValueTable kIq2Table = value_table<4>({8, 25, 43, 0});
constexpr ValueTable kIq3XxsTable = value_table<8>({4, 12, 20, 28, 36, 44, 52, 62});
constexpr ValueTable kIq3STable = value_table<8>({1, 3, 5, 7, 9, 11, 13, 15});

inline B signed_values(const ValueTable& table, B digits, const uint32_t* signs) {
  const __mmask64 negative = load_u64(reinterpret_cast<const uint8_t*>(signs));
  const B positive = _mm512_permutexvar_epi8(digits, _mm512_load_si512(table.biased));
  return _mm512_mask_sub_epi8(positive, negative, _mm512_set1_epi8(static_cast<char>(2 * kGridBias)), positive);
}

// Step j of 32 codes of eight base-4 digits: each code to 64 bits, each digit to a byte.
inline B spread_base4(B codes, int j) {
  const B order = _mm512_add_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(8 * j));
  return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x0e0c0a0806040200), _mm512_permutexvar_epi16(order, codes));
}
// Half `half` of 32 codes of four base-8 digits.
inline B spread_base8(B codes, int half) {
  const B order = _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                   _mm512_set1_epi32(16 * half));
  return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x2926232009060300), _mm512_permutexvar_epi16(order, codes));
}

template <int kBytes, typename Scale>
struct VbmiIQ2 : Layout<256, kBytes, Form::kBiased, kGridBias, Mins::kNone> {
  B codes;
  alignas(32) uint32_t signs[8];
  Scale scale;
  inline B step(int j) const { return signed_values(kIq2Table, spread_base4(codes, j), signs + 2 * j); }
};

// Nibbles of eight bytes, lower first, to odd scales.
inline S16 nibble_scales_vbmi(const uint8_t* p, float factor) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i nibbles = _mm_and_si128(_mm_unpacklo_epi8(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi8(15));
  const __m512i n = _mm512_cvtepu8_epi32(nibbles);
  return {
      _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_add_epi32(n, n), _mm512_set1_epi32(1))), f_set(factor))};
}

struct VbmiIQ2_XXS : VbmiIQ2<66, S8> {
  static inline VbmiIQ2_XXS open(const uint8_t* p) {
    // Eight times four indices and a word of signs and scale.
    const B groups = b_load(p + 2);
    VbmiIQ2_XXS unit;
    unit.codes = look_up_codes<256>(kIq2XxsCodes, _mm512_cvtepu8_epi16(_mm512_cvtepi64_epi32(groups)));
    store_ymm(unit.signs, signs_of_words(groups, 32));
    unit.scale = {odd_scales(_mm512_cvtepi64_epi32(_mm512_srli_epi64(groups, 60)), load_half(p) * 0.125f)};
    return unit;
  }
};

struct VbmiIQ2_XS : VbmiIQ2<74, S16> {
  static inline VbmiIQ2_XS open(const uint8_t* p) {
    const B words = b_load(p + 2);
    VbmiIQ2_XS unit;
    unit.codes = look_up_codes<512>(kIq2XsCodes, _mm512_and_si512(words, _mm512_set1_epi16(511)));
    const __m256i bits = _mm512_cvtepi16_epi8(_mm512_srli_epi16(words, 9));
    store_ymm(unit.signs, _mm512_castsi512_si256(with_parity(_mm512_castsi256_si512(bits))));
    unit.scale = nibble_scales_vbmi(p + 66, load_half(p) * 0.125f);
    return unit;
  }
};

struct VbmiIQ2_S : VbmiIQ2<82, S16> {
  static inline VbmiIQ2_S open(const uint8_t* p) {
    // Each of eight bytes has bits 8 and 9 of four indices.
    const B bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 66)));
    const B high = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x0600040002000000), bytes);
    const B index =
        _mm512_ternarylogic_epi64(high, _mm512_set1_epi16(0x300), _mm512_cvtepu8_epi16(load_256(p + 2)), 0xea);
    VbmiIQ2_S unit;
    unit.codes = look_up_codes<1024>(kIq2SCodes, index);
    store_ymm(unit.signs, load_256(p + 34));
    unit.scale = nibble_scales_vbmi(p + 74, load_half(p) * 0.125f);
    return unit;
  }
};

struct VbmiIQ3_XXS : Layout<256, 98, Form::kBiased, kGridBias, Mins::kNone> {
  B codes[2];
  alignas(32) uint32_t signs[8];
  S8 scale;
  static inline VbmiIQ3_XXS open(const uint8_t* p) {
    VbmiIQ3_XXS unit;
    for (int i = 0; i < 2; ++i)
      unit.codes[i] = look_up_codes<256>(kIq3XxsCodes, _mm512_cvtepu8_epi16(load_256(p + 2 + 32 * i)));
    const __m256i words = load_256(p + 66);
    store_ymm(unit.signs, signs_of_words(_mm512_cvtepu32_epi64(words), 0));
    unit.scale = {top_scales(words, load_half(p) * 0.25f)};
    return unit;
  }
  inline B step(int j) const { return signed_values(kIq3XxsTable, spread_base8(codes[j / 2], j % 2), signs + 2 * j); }
};

struct VbmiIQ3_S : Layout<256, 110, Form::kBiased, kGridBias, Mins::kNone> {
  B codes[2];
  const uint8_t* p;
  S8 scale;
  static inline VbmiIQ3_S open(const uint8_t* p) {
    VbmiIQ3_S unit;
    unit.p = p;
    for (int i = 0; i < 2; ++i) {
      const B low = _mm512_cvtepu8_epi16(load_256(p + 2 + 32 * i));
      const B index = _mm512_mask_add_epi16(low, load_u32(p + 66 + 4 * i), low, _mm512_set1_epi16(256));
      unit.codes[i] = look_up_codes<512>(kIq3SCodes, index);
    }
    unit.scale = {odd_scales(eight_nibbles(load_u32(p + 106)), load_half(p))};
    return unit;
  }
  inline B step(int j) const {
    return signed_values(kIq3STable, spread_base8(codes[j / 2], j % 2),
                         reinterpret_cast<const uint32_t*>(p + 74 + 8 * j));
  }
};

struct Avx512VbmiTypes : Avx512Types {
  using IQ2_XXS = VbmiIQ2_XXS;
  using IQ2_XS = VbmiIQ2_XS;
  using IQ2_S = VbmiIQ2_S;
  using IQ3_XXS = VbmiIQ3_XXS;
  using IQ3_S = VbmiIQ3_S;
};

}  // namespace
}  // namespace les
