// Every quantised type unpacked to signed bytes and scales in plain C++: the reference for the vector versions, and
// what an instruction set without its own version uses. Byte offsets are those of the blocks in quant/blocks.h.
#pragma once

#include "kernels/unpack_base.h"
#include "kernels/unpack_fp4_scalar.h"
#include "kernels/unpack_iq_scalar.h"

namespace les {
namespace {

// --- blocks of 32 ---------------------------------------------------------------------------------------------------

inline void unpack_q8_0(const uint8_t* p, RawUnit& out) {
  for (int b = 0; b < 8; ++b, p += 34) {
    out.scale[b] = load_half(p);
    std::memcpy(out.w + 32 * b, p + 2, 32);
  }
}

inline void unpack_q4_0(const uint8_t* p, RawUnit& out) {
  for (int b = 0; b < 8; ++b, p += 18) {
    out.scale[b] = load_half(p);
    for (int i = 0; i < 16; ++i) {
      out.w[32 * b + i] = static_cast<int8_t>((p[2 + i] & 15) - 8);
      out.w[32 * b + 16 + i] = static_cast<int8_t>((p[2 + i] >> 4) - 8);
    }
  }
}

inline void unpack_q4_1(const uint8_t* p, RawUnit& out) {
  for (int b = 0; b < 8; ++b, p += 20) {
    out.scale[b] = load_half(p);
    out.min[b] = -load_half(p + 2);
    for (int i = 0; i < 16; ++i) {
      out.w[32 * b + i] = static_cast<int8_t>(p[4 + i] & 15);
      out.w[32 * b + 16 + i] = static_cast<int8_t>(p[4 + i] >> 4);
    }
  }
}

inline void unpack_q5_0(const uint8_t* p, RawUnit& out) {
  for (int b = 0; b < 8; ++b, p += 22) {
    out.scale[b] = load_half(p);
    const uint32_t high = load_u32(p + 2);
    for (int i = 0; i < 16; ++i) {
      out.w[32 * b + i] = static_cast<int8_t>(((p[6 + i] & 15) | (high >> i & 1) << 4) - 16);
      out.w[32 * b + 16 + i] = static_cast<int8_t>((p[6 + i] >> 4 | (high >> (i + 16) & 1) << 4) - 16);
    }
  }
}

inline void unpack_q5_1(const uint8_t* p, RawUnit& out) {
  for (int b = 0; b < 8; ++b, p += 24) {
    out.scale[b] = load_half(p);
    out.min[b] = -load_half(p + 2);
    const uint32_t high = load_u32(p + 4);
    for (int i = 0; i < 16; ++i) {
      out.w[32 * b + i] = static_cast<int8_t>((p[8 + i] & 15) | (high >> i & 1) << 4);
      out.w[32 * b + 16 + i] = static_cast<int8_t>(p[8 + i] >> 4 | (high >> (i + 16) & 1) << 4);
    }
  }
}

inline void unpack_iq4_nl(const uint8_t* p, RawUnit& out) {
  for (int b = 0; b < 8; ++b, p += 18) {
    out.scale[b] = load_half(p);
    for (int i = 0; i < 16; ++i) {
      out.w[32 * b + i] = kIq4Values[p[2 + i] & 15];
      out.w[32 * b + 16 + i] = kIq4Values[p[2 + i] >> 4];
    }
  }
}

// --- blocks of 256 --------------------------------------------------------------------------------------------------

inline void unpack_q2_k(const uint8_t* p, RawUnit& out) {
  const float d = load_half(p + 80);
  const float d_min = load_half(p + 82);
  for (int g = 0; g < 16; ++g) {
    out.scale[g] = d * static_cast<float>(p[g] & 15);
    out.min[g] = d_min * static_cast<float>(p[g] >> 4);
    for (int i = 0; i < 16; ++i) {
      const int at = 16 * g + i;
      out.w[at] = static_cast<int8_t>(p[16 + at / 128 * 32 + at % 32] >> (at % 128 / 32 * 2) & 3);
    }
  }
}

inline void unpack_q3_k(const uint8_t* p, RawUnit& out) {
  const float d = load_half(p + 108);
  const uint8_t* packed = p + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4;
    const int high = packed[8 + g % 4] >> (g / 4 * 2) & 3;
    out.scale[g] = d * static_cast<float>((low | high << 4) - 32);
    for (int i = 0; i < 16; ++i) {
      const int at = 16 * g + i;
      const int bits = p[32 + at / 128 * 32 + at % 32] >> (at % 128 / 32 * 2) & 3;
      const int is_high = p[at % 32] >> (at / 32) & 1;
      out.w[at] = static_cast<int8_t>(bits - (is_high != 0 ? 0 : 4));
    }
  }
}

// Scales and minima of Q4_K and Q5_K: 6 bits each, in 12 bytes.
inline void unpack_k_scales(const uint8_t* p, RawUnit& out) {
  const float d = load_half(p);
  const float d_min = load_half(p + 2);
  const uint8_t* s = p + 4;
  for (int g = 0; g < 8; ++g) {
    const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
    const int min = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
    out.scale[g] = d * static_cast<float>(scale);
    out.min[g] = d_min * static_cast<float>(min);
  }
}

inline void unpack_q4_k(const uint8_t* p, RawUnit& out) {
  unpack_k_scales(p, out);
  for (int at = 0; at < 256; ++at) {
    out.w[at] = static_cast<int8_t>(p[16 + at / 64 * 32 + at % 32] >> (at % 64 / 32 * 4) & 15);
  }
}

inline void unpack_q5_k(const uint8_t* p, RawUnit& out) {
  unpack_k_scales(p, out);
  for (int at = 0; at < 256; ++at) {
    const int low = p[48 + at / 64 * 32 + at % 32] >> (at % 64 / 32 * 4) & 15;
    const int high = p[16 + at % 32] >> (at / 32) & 1;
    out.w[at] = static_cast<int8_t>(low | high << 4);
  }
}

inline void unpack_q6_k(const uint8_t* p, RawUnit& out) {
  const float d = load_half(p + 208);
  for (int g = 0; g < 16; ++g) out.scale[g] = d * static_cast<float>(static_cast<int8_t>(p[192 + g]));
  for (int at = 0; at < 256; ++at) {
    const int low = p[at / 128 * 64 + at % 64] >> (at % 128 / 64 * 4) & 15;
    const int high = p[128 + at / 128 * 32 + at % 32] >> (at % 128 / 32 * 2) & 3;
    out.w[at] = static_cast<int8_t>((low | high << 4) - 32);
  }
}

inline void unpack_iq4_xs(const uint8_t* p, RawUnit& out) {
  const float d = load_half(p);
  const uint16_t high = load_u16(p + 2);
  for (int g = 0; g < 8; ++g) {
    const int scale = (p[4 + g / 2] >> (g % 2 * 4) & 15) | (high >> (2 * g) & 3) << 4;
    out.scale[g] = d * static_cast<float>(scale - 32);
    for (int i = 0; i < 16; ++i) {
      out.w[32 * g + i] = kIq4Values[p[8 + 16 * g + i] & 15];
      out.w[32 * g + 16 + i] = kIq4Values[p[8 + 16 * g + i] >> 4];
    }
  }
}

// Five base-3 digits in a byte, as a fraction of 256: times 3^n, the next digit stands above the point.
inline int ternary_digit(uint8_t byte, int n) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  return static_cast<uint8_t>(byte * kPowers[n]) * 3 >> 8;
}

inline void unpack_tq1_0(const uint8_t* p, RawUnit& out) {
  const float d = load_half(p + 52);
  for (int g = 0; g < 8; ++g) out.scale[g] = d;
  for (int i = 0; i < 160; ++i) out.w[i] = static_cast<int8_t>(ternary_digit(p[i % 32], i / 32) - 1);
  for (int i = 0; i < 80; ++i) out.w[160 + i] = static_cast<int8_t>(ternary_digit(p[32 + i % 16], i / 16) - 1);
  for (int i = 0; i < 16; ++i) out.w[240 + i] = static_cast<int8_t>(ternary_digit(p[48 + i % 4], i / 4) - 1);
}

inline void unpack_tq2_0(const uint8_t* p, RawUnit& out) {
  const float d = load_half(p + 64);
  for (int g = 0; g < 8; ++g) out.scale[g] = d;
  for (int at = 0; at < 256; ++at) {
    out.w[at] = static_cast<int8_t>((p[at / 128 * 32 + at % 32] >> (at % 128 / 32 * 2) & 3) - 1);
  }
}

// What each type is unpacked by. An instruction set derives from this and replaces what it does better.
struct PortableTypes {
  using Q8_0 = Portable<32, 34, S8, Mins::kNone, unpack_q8_0>;
  using Q4_0 = Portable<32, 18, S8, Mins::kNone, unpack_q4_0>;
  using Q4_1 = Portable<32, 20, S8, Mins::kPer32, unpack_q4_1>;
  using Q5_0 = Portable<32, 22, S8, Mins::kNone, unpack_q5_0>;
  using Q5_1 = Portable<32, 24, S8, Mins::kPer32, unpack_q5_1>;
  using IQ4_NL = Portable<32, 18, S8, Mins::kNone, unpack_iq4_nl>;
  using MXFP4 = Portable<32, 17, S8, Mins::kNone, unpack_mxfp4>;
  using NVFP4 = Portable<64, 36, S16, Mins::kNone, unpack_nvfp4>;
  using Q2_K = Portable<256, 84, S16, Mins::kPer16, unpack_q2_k>;
  using Q3_K = Portable<256, 110, S16, Mins::kNone, unpack_q3_k>;
  using Q4_K = Portable<256, 144, S8, Mins::kPer32, unpack_q4_k>;
  using Q5_K = Portable<256, 176, S8, Mins::kPer32, unpack_q5_k>;
  using Q6_K = Portable<256, 210, S16, Mins::kNone, unpack_q6_k>;
  using IQ4_XS = Portable<256, 136, S8, Mins::kNone, unpack_iq4_xs>;
  using TQ1_0 = Portable<256, 54, S8, Mins::kNone, unpack_tq1_0>;
  using TQ2_0 = Portable<256, 66, S8, Mins::kNone, unpack_tq2_0>;
  using IQ2_XXS = Portable<256, 66, S8, Mins::kNone, unpack_iq2_xxs>;
  using IQ2_XS = Portable<256, 74, S16, Mins::kNone, unpack_iq2_xs>;
  using IQ2_S = Portable<256, 82, S16, Mins::kNone, unpack_iq2_s>;
  using IQ3_XXS = Portable<256, 98, S8, Mins::kNone, unpack_iq3_xxs>;
  using IQ3_S = Portable<256, 110, S8, Mins::kNone, unpack_iq3_s>;
  using IQ1_S = Portable<256, 50, S8, Mins::kNone, unpack_iq1_s>;
  using IQ1_M = Portable<256, 56, S16, Mins::kNone, unpack_iq1_m>;
};

}  // namespace
}  // namespace les
