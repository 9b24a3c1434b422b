// The 4-bit code books, and the types of 4-bit floats in plain C++.
#pragma once

#include "kernels/unpack_base.h"

namespace les {
namespace {

// The 4-bit code books. MXFP4's is doubled, so its scale is halved.
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Half of 2^(e - 127).
inline float half_of_e8m0(uint8_t e) {
  const uint32_t bits = e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23;
  float r;
  std::memcpy(&r, &bits, sizeof(r));
  return r;
}

// Half of an unsigned float of 4 exponent and 3 mantissa bits, bias 7; 0x7f is no number and counts as zero.
inline float half_of_ue4m3(uint8_t v) {
  if (v == 0 || v == 0x7f) return 0.0f;
  const int exponent = v >> 3 & 15;
  const float mantissa = static_cast<float>(v & 7);
  if (exponent == 0) return mantissa * 0x1p-10f;
  const uint32_t bits = static_cast<uint32_t>(exponent - 8 + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return (1.0f + mantissa * 0.125f) * power;
}

inline void unpack_mxfp4(const uint8_t* p, RawUnit& out) {
  for (int b = 0; b < 8; ++b, p += 17) {
    out.scale[b] = half_of_e8m0(p[0]);
    for (int i = 0; i < 16; ++i) {
      out.w[32 * b + i] = kFp4Values[p[1 + i] & 15];
      out.w[32 * b + 16 + i] = kFp4Values[p[1 + i] >> 4];
    }
  }
}

inline void unpack_nvfp4(const uint8_t* p, RawUnit& out) {
  for (int b = 0; b < 4; ++b, p += 36) {
    for (int s = 0; s < 4; ++s) {
      out.scale[4 * b + s] = half_of_ue4m3(p[s]);
      for (int i = 0; i < 8; ++i) {
        const uint8_t q = p[4 + 8 * s + i];
        out.w[64 * b + 16 * s + i] = kFp4Values[q & 15];
        out.w[64 * b + 16 * s + 8 + i] = kFp4Values[q >> 4];
      }
    }
  }
}

}  // namespace
}  // namespace les
