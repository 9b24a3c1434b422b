// The types with code books of points (IQ1, IQ2, IQ3) in plain C++.
#pragma once

#include "kernels/unpack_base.h"
#include "quant/iq_grids.h"

namespace les {
namespace {

// Seven sign bits; the eighth makes their number even.
inline uint8_t even_signs(uint32_t bits) {
  bits &= 127;
  return static_cast<uint8_t>(bits | static_cast<uint32_t>(__builtin_parity(bits)) << 7);
}

// A point's magnitudes with their signs; kCount is 8 or 4.
template <int kCount, typename Point>
inline void put_point(int8_t* out, Point point, uint32_t signs) {
  for (int k = 0; k < kCount; ++k) {
    const int magnitude = static_cast<int>(point >> (8 * k) & 255);
    out[k] = static_cast<int8_t>((signs >> k & 1) != 0 ? -magnitude : magnitude);
  }
}

inline void unpack_iq2_xxs(const uint8_t* p, RawUnit& out) {
  const float d = load_half(p) * 0.125f;
  for (int g = 0; g < 8; ++g) {
    const uint8_t* at = p + 2 + 8 * g;
    const uint32_t signs = load_u32(at + 4);
    out.scale[g] = d * static_cast<float>(2 * (signs >> 28) + 1);
    for (int i = 0; i < 4; ++i)
      put_point<8>(out.w + 32 * g + 8 * i, kIq2XxsGrid.points[at[i]], even_signs(signs >> (7 * i)));
  }
}

// Two nibbles a byte: the scales of 16 groups of 16.
inline void nibble_scales(const uint8_t* p, float d, RawUnit& out) {
  for (int g = 0; g < 16; ++g) out.scale[g] = d * static_cast<float>(2 * (p[g / 2] >> (g % 2 * 4) & 15) + 1);
}

inline void unpack_iq2_xs(const uint8_t* p, RawUnit& out) {
  nibble_scales(p + 66, load_half(p) * 0.125f, out);
  for (int i = 0; i < 32; ++i) {
    const uint32_t code = load_u16(p + 2 + 2 * i);
    put_point<8>(out.w + 8 * i, kIq2XsGrid.points[code & 511], even_signs(code >> 9));
  }
}

inline void unpack_iq2_s(const uint8_t* p, RawUnit& out) {
  nibble_scales(p + 74, load_half(p) * 0.125f, out);
  for (int i = 0; i < 32; ++i) {
    const uint32_t index = p[2 + i] | static_cast<uint32_t>(p[66 + i / 4] >> (i % 4 * 2) & 3) << 8;
    put_point<8>(out.w + 8 * i, kIq2SGrid.points[index], p[34 + i]);
  }
}

inline void unpack_iq3_xxs(const uint8_t* p, RawUnit& out) {
  const float d = load_half(p) * 0.25f;
  for (int g = 0; g < 8; ++g) {
    const uint32_t signs = load_u32(p + 66 + 4 * g);
    out.scale[g] = d * static_cast<float>(2 * (signs >> 28) + 1);
    for (int i = 0; i < 8; ++i) {
      const uint32_t four = static_cast<uint32_t>(even_signs(signs >> (7 * (i / 2)))) >> (i % 2 * 4);
      put_point<4>(out.w + 32 * g + 4 * i, kIq3XxsGrid.points[p[2 + 8 * g + i]], four);
    }
  }
}

inline void unpack_iq3_s(const uint8_t* p, RawUnit& out) {
  const float d = load_half(p);
  for (int g = 0; g < 8; ++g) {
    out.scale[g] = d * static_cast<float>(2 * (p[106 + g / 2] >> (g % 2 * 4) & 15) + 1);
    for (int i = 0; i < 8; ++i) {
      const uint32_t index = p[2 + 8 * g + i] | static_cast<uint32_t>(p[66 + g] >> i & 1) << 8;
      put_point<4>(out.w + 32 * g + 4 * i, kIq3SGrid.points[index],
                   static_cast<uint32_t>(p[74 + 4 * g + i / 2]) >> (i % 2 * 4));
    }
  }
}

// Eight times a ternary point, one up or down: the shift of an eighth that both IQ1 types have.
inline void put_shifted(int8_t* out, uint64_t point, bool is_down) {
  for (int k = 0; k < 8; ++k) {
    out[k] = static_cast<int8_t>(static_cast<int8_t>(point >> (8 * k) & 255) + (is_down ? -1 : 1));
  }
}

inline void unpack_iq1_s(const uint8_t* p, RawUnit& out) {
  const float d = load_half(p) * 0.125f;
  for (int g = 0; g < 8; ++g) {
    const uint32_t high = load_u16(p + 34 + 2 * g);
    out.scale[g] = d * static_cast<float>(2 * (high >> 12 & 7) + 1);
    for (int i = 0; i < 4; ++i) {
      const uint32_t index = p[2 + 4 * g + i] | (high >> (3 * i) & 7) << 8;
      put_shifted(out.w + 32 * g + 8 * i, kIq1Grid.points[index], (high & 0x8000) != 0);
    }
  }
}

inline float iq1_m_scale(const uint8_t* p) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(p[49 + 2 * i] >> 4) << (4 * i);
  return half_to_float(static_cast<uint16_t>(bits));
}

inline void unpack_iq1_m(const uint8_t* p, RawUnit& out) {
  const float d = iq1_m_scale(p) * 0.125f;
  for (int g = 0; g < 16; ++g) {
    const uint32_t scale = static_cast<uint32_t>(load_u16(p + 48 + g / 4 * 2)) >> (g % 4 * 3) & 7;
    out.scale[g] = d * static_cast<float>(2 * scale + 1);
    for (int i = 0; i < 2; ++i) {
      const uint32_t high = static_cast<uint32_t>(p[32 + g]) >> (4 * i) & 15;
      put_shifted(out.w + 16 * g + 8 * i, kIq1Grid.points[p[2 * g + i] | (high & 7) << 8], (high & 8) != 0);
    }
  }
}

}  // namespace
}  // namespace les
