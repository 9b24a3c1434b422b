// IQ4_XS, TQ2_0 and the types with code books for NEON, and the list of all types.
#pragma once

#include "kernels/unpack_neon.h"

namespace les {
namespace {

struct FastIQ4_XS : Layout<256, 136, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastIQ4_XS open(const uint8_t* p) {
    FastIQ4_XS unit = {{}, p, {}};
    const float d = load_half(p);
    const uint32_t low = load_u32(p + 4);
    const uint32_t high = load_u16(p + 2);
    for (int g = 0; g < 8; ++g) {
      const uint32_t bits = (low >> (4 * g) & 15) | (high >> (2 * g) & 3) << 4;
      unit.scale.v[g] = d * static_cast<float>(static_cast<int>(bits) - 32);
    }
    return unit;
  }
  inline B step(int j) const { return look_up(kIq4Values, nibbles_of(p + 8 + 16 * j)); }
};

struct FastTQ2_0 : Layout<256, 66, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastTQ2_0 open(const uint8_t* p) {
    FastTQ2_0 unit = {{}, p, {}};
    f_store(unit.scale.v, f_set(load_half(p + 64)));
    return unit;
  }
  inline B step(int j) const { return b_sub(two_bits(p, j), 1); }
};

// The types with code books of points: the loads of points dominate, signs are set by vectors.
inline B with_signs(uint8x16_t low, uint8x16_t high, const uint8_t* signs) {
  const B negative = spread_bits(signs, 255);
  const B magnitudes = b_signed(low, high);
  return {vsubq_s8(veorq_s8(magnitudes.low, negative.low), negative.low),
          vsubq_s8(veorq_s8(magnitudes.high, negative.high), negative.high)};
}
inline uint8x16_t two_points(uint64_t a, uint64_t b) {
  return vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(a), vcreate_u64(b)));
}
inline uint8x16_t two_points_of_pairs(const uint32_t* grid, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return two_points(grid[a] | static_cast<uint64_t>(grid[b]) << 32, grid[c] | static_cast<uint64_t>(grid[d]) << 32);
}
inline uint32_t even_sign_word(uint32_t word) {
  return static_cast<uint32_t>(even_signs(word)) | static_cast<uint32_t>(even_signs(word >> 7)) << 8 |
         static_cast<uint32_t>(even_signs(word >> 14)) << 16 | static_cast<uint32_t>(even_signs(word >> 21)) << 24;
}
inline B with_signs(uint8x16_t low, uint8x16_t high, uint32_t signs) {
  uint8_t bytes[4];
  std::memcpy(bytes, &signs, sizeof(bytes));
  return with_signs(low, high, bytes);
}
inline S16 nibble_scales_of(const uint8_t* p, float factor) {
  S16 s;
  for (int g = 0; g < 16; ++g) s.v[g] = factor * static_cast<float>(2 * (p[g / 2] >> (g % 2 * 4) & 15) + 1);
  return s;
}

struct FastIQ2_XXS : Layout<256, 66, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastIQ2_XXS open(const uint8_t* p) {
    FastIQ2_XXS unit = {{}, p, {}};
    const float d = load_half(p) * 0.125f;
    for (int g = 0; g < 8; ++g) unit.scale.v[g] = d * static_cast<float>(2 * (p[9 + 8 * g] >> 4) + 1);
    return unit;
  }
  inline B step(int j) const {
    const uint8_t* at = p + 2 + 8 * j;
    const uint64_t* grid = kIq2XxsGrid.points;
    return with_signs(two_points(grid[at[0]], grid[at[1]]), two_points(grid[at[2]], grid[at[3]]),
                      even_sign_word(load_u32(at + 4)));
  }
};

struct FastIQ2_XS : Layout<256, 74, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S16 scale;
  static inline FastIQ2_XS open(const uint8_t* p) { return {{}, p, nibble_scales_of(p + 66, load_half(p) * 0.125f)}; }
  inline B step(int j) const {
    const uint64_t* grid = kIq2XsGrid.points;
    uint32_t code[4];
    uint32_t signs = 0;
    for (int i = 0; i < 4; ++i) {
      code[i] = load_u16(p + 2 + 8 * j + 2 * i);
      signs |= static_cast<uint32_t>(even_signs(code[i] >> 9)) << (8 * i);
    }
    return with_signs(two_points(grid[code[0] & 511], grid[code[1] & 511]),
                      two_points(grid[code[2] & 511], grid[code[3] & 511]), signs);
  }
};

struct FastIQ2_S : Layout<256, 82, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S16 scale;
  static inline FastIQ2_S open(const uint8_t* p) { return {{}, p, nibble_scales_of(p + 74, load_half(p) * 0.125f)}; }
  inline B step(int j) const {
    const uint64_t* grid = kIq2SGrid.points;
    const uint8_t* at = p + 2 + 4 * j;
    const uint32_t high = static_cast<uint32_t>(p[66 + j]) << 8;
    return with_signs(two_points(grid[at[0] | (high & 0x300)], grid[at[1] | (high >> 2 & 0x300)]),
                      two_points(grid[at[2] | (high >> 4 & 0x300)], grid[at[3] | (high >> 6 & 0x300)]), p + 34 + 4 * j);
  }
};

struct FastIQ3_XXS : Layout<256, 98, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastIQ3_XXS open(const uint8_t* p) {
    FastIQ3_XXS unit = {{}, p, {}};
    const float d = load_half(p) * 0.25f;
    for (int g = 0; g < 8; ++g) unit.scale.v[g] = d * static_cast<float>(2 * (p[69 + 4 * g] >> 4) + 1);
    return unit;
  }
  inline B step(int j) const {
    const uint8_t* at = p + 2 + 8 * j;
    const uint32_t* grid = kIq3XxsGrid.points;
    return with_signs(two_points_of_pairs(grid, at[0], at[1], at[2], at[3]),
                      two_points_of_pairs(grid, at[4], at[5], at[6], at[7]), even_sign_word(load_u32(p + 66 + 4 * j)));
  }
};

struct FastIQ3_S : Layout<256, 110, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastIQ3_S open(const uint8_t* p) {
    FastIQ3_S unit = {{}, p, {}};
    const float d = load_half(p);
    for (int g = 0; g < 8; ++g) unit.scale.v[g] = d * static_cast<float>(2 * (p[106 + g / 2] >> (g % 2 * 4) & 15) + 1);
    return unit;
  }
  inline B step(int j) const {
    const uint32_t* grid = kIq3SGrid.points;
    uint32_t index[8];
    for (int i = 0; i < 8; ++i) index[i] = p[2 + 8 * j + i] | static_cast<uint32_t>(p[66 + j] >> i & 1) << 8;
    return with_signs(two_points_of_pairs(grid, index[0], index[1], index[2], index[3]),
                      two_points_of_pairs(grid, index[4], index[5], index[6], index[7]), p + 74 + 4 * j);
  }
};

struct NeonTypes : PortableTypes {
  using Q8_0 = FastQ8_0;
  using Q4_0 = FastQ4_0;
  using Q4_1 = FastQ4_1;
  using Q5_0 = FastQ5_0;
  using Q5_1 = FastQ5_1;
  using IQ4_NL = FastIQ4_NL;
  using MXFP4 = FastMXFP4;
  using NVFP4 = FastNVFP4;
  using Q2_K = FastQ2_K;
  using Q3_K = FastQ3_K;
  using Q4_K = FastQ4_K;
  using Q5_K = FastQ5_K;
  using Q6_K = FastQ6_K;
  using IQ4_XS = FastIQ4_XS;
  using TQ2_0 = FastTQ2_0;
  using IQ2_XXS = FastIQ2_XXS;
  using IQ2_XS = FastIQ2_XS;
  using IQ2_S = FastIQ2_S;
  using IQ3_XXS = FastIQ3_XXS;
  using IQ3_S = FastIQ3_S;
};

}  // namespace
}  // namespace les
