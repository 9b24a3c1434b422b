// Powers of two and 16-bit floats in integer arithmetic, for processors without conversions.
#pragma once

#include <cstdint>
#include <cstring>

namespace les {
namespace {

inline float scalar_pow2(int n) {
  const uint32_t bits = static_cast<uint32_t>(n + 127) << 23;
  float r;
  std::memcpy(&r, &bits, sizeof(r));
  return r;
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  float r;
  uint32_t bits;
  if (magnitude >= 0x7c00) {
    bits = 0x7f800000u | (magnitude & 0x3ffu) << 13 | ((magnitude & 0x3ffu) != 0 ? 0x400000u : 0u);
  } else if (magnitude >= 0x400) {
    bits = (magnitude << 13) + (112u << 23);
  } else {
    const float small = static_cast<float>(magnitude) * 0x1p-24f;
    std::memcpy(&bits, &small, sizeof(bits));
  }
  bits |= sign;
  std::memcpy(&r, &bits, sizeof(r));
  return r;
}

// Nearest even; what is too large becomes infinite.
inline uint16_t float_to_half(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    float a;
    std::memcpy(&a, &magnitude, sizeof(a));
    a += 0.5f;  // the addition rounds to multiples of 2^-24, as halves below 2^-14 are
    uint32_t rounded;
    std::memcpy(&rounded, &a, sizeof(rounded));
    return static_cast<uint16_t>(sign | (rounded - 0x3f000000u));
  }
  const uint32_t round_up = 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((magnitude + round_up - (112u << 23)) >> 13));
}

}  // namespace
}  // namespace les
