// What unpacking in plain C++ is made of: a unit as signed bytes and scales, and its wrapper for the products.
#pragma once

#include <cstring>

#include "kernels/matmul_inl.h"

namespace les {
namespace {

// weight = scale * w - min; a scale for each 32 or 16 weights.
struct RawUnit {
  alignas(64) int8_t w[kUnit];
  float scale[16];
  float min[16];
};

using UnpackFn = void (*)(const uint8_t* p, RawUnit& out);

template <int kBlockOf, int kBytesOf, typename Scale, Mins kMinsOf, UnpackFn kUnpack>
struct Portable {
  static constexpr int kBlock = kBlockOf;
  static constexpr size_t kBlockBytes = kBytesOf;
  static constexpr Form kForm = kHasSignedDot ? Form::kSigned : Form::kBiased;
  static constexpr int kBias = kHasSignedDot ? 0 : 128;
  static constexpr Mins kMins = kMinsOf;
  RawUnit raw;
  Scale scale;
  Scale min;

  static inline Portable open(const uint8_t* p) {
    Portable unit;
    fill(p, unit.raw);
    load(unit.raw.scale, unit.scale);
    if constexpr (kMins != Mins::kNone) load(unit.raw.min, unit.min);
    return unit;
  }
  inline B step(int j) const { return b_load(raw.w + j * kStep); }

 private:
  static __attribute__((noinline)) void fill(const uint8_t* p, RawUnit& raw) {
    kUnpack(p, raw);
    if constexpr (!kHasSignedDot) {
      for (int i = 0; i < kUnit; ++i) raw.w[i] = static_cast<int8_t>(raw.w[i] ^ -128);
    }
  }
  static inline void load(const float* p, S8& s) { s = s8_load(p); }
  static inline void load(const float* p, S16& s) { s = s16_load(p); }
};

inline uint16_t load_u16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}
inline uint32_t load_u32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}
inline uint64_t load_u64(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}
inline float load_half(const uint8_t* p) { return half_to_float(load_u16(p)); }

}  // namespace
}  // namespace les
