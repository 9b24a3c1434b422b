// Four floats at a time, as every 64-bit processor can: element-wise IEEE arithmetic with the same bits everywhere.
#pragma once

#include <cstring>

namespace les {

using F4 = float __attribute__((vector_size(16)));

inline F4 splat(float v) { return F4{v, v, v, v}; }
inline F4 load4(const float* p) {
  F4 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline void store4(float* p, F4 v) { std::memcpy(p, &v, sizeof(v)); }
inline F4 min4(F4 a, F4 b) { return a < b ? a : b; }
inline F4 max4(F4 a, F4 b) { return a > b ? a : b; }
inline float sum4(F4 v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// Nearest integer, ties to even, of |v| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction.
inline F4 round4(F4 v) { return (v + splat(12582912.0f)) - splat(12582912.0f); }
inline float round1(float v) { return (v + 12582912.0f) - 12582912.0f; }

// 1 / v, or 0 where that is no number, so that empty blocks need no branch.
inline float inverse_or_zero(float v) { return v > 1e-30f || v < -1e-30f ? 1.0f / v : 0.0f; }

}  // namespace les
