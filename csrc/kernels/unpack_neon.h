// Unpacking for NEON: 32 weights a step, signed or below 128.
#pragma once

#include "kernels/unpack_scalar.h"

namespace les {
namespace {

inline B b_signed(uint8x16_t low, uint8x16_t high) { return {vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(high)}; }
inline B b_sub(B a, int value) {
  const int8x16_t v = vdupq_n_s8(static_cast<int8_t>(value));
  return {vsubq_s8(a.low, v), vsubq_s8(a.high, v)};
}
inline B b_or(B a, B b) { return {vorrq_s8(a.low, b.low), vorrq_s8(a.high, b.high)}; }
inline B b_and(B a, int value) {
  const int8x16_t v = vdupq_n_s8(static_cast<int8_t>(value));
  return {vandq_s8(a.low, v), vandq_s8(a.high, v)};
}
// 16 bytes: 16 low nibbles, then 16 high nibbles.
inline B nibbles_of(const uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  return b_signed(vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8(bytes, 4));
}
inline B look_up(const int8_t* table, B index) {
  const int8x16_t values = vld1q_s8(table);
  return {vqtbl1q_s8(values, vreinterpretq_u8_s8(index.low)), vqtbl1q_s8(values, vreinterpretq_u8_s8(index.high))};
}
// 32 bytes shifted right.
inline B shifted(const uint8_t* p, int bits) {
  const int8x16_t count = vdupq_n_s8(static_cast<int8_t>(-bits));
  return b_signed(vshlq_u8(vld1q_u8(p), count), vshlq_u8(vld1q_u8(p + 16), count));
}
// 16 bits to 16 bytes of `value` or zero.
inline uint8x16_t spread_16(const uint8_t* p, int value) {
  const uint8x16_t bytes = vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1]));
  const uint8x16_t select = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
  return vandq_u8(vtstq_u8(bytes, select), vdupq_n_u8(static_cast<uint8_t>(value)));
}
inline B spread_bits(const uint8_t* p, int value) { return b_signed(spread_16(p, value), spread_16(p + 2, value)); }
// Bit j of 32 bytes to `value` or zero.
inline B spread_plane(const uint8_t* p, int j, int value) {
  const uint8x16_t bit = vdupq_n_u8(static_cast<uint8_t>(1 << j));
  const uint8x16_t v = vdupq_n_u8(static_cast<uint8_t>(value));
  return b_signed(vandq_u8(vtstq_u8(vld1q_u8(p), bit), v), vandq_u8(vtstq_u8(vld1q_u8(p + 16), bit), v));
}

template <int kStride>
inline S8 half_scales(const uint8_t* p, float sign) {
  S8 s;
  for (int i = 0; i < 8; ++i) s.v[i] = sign * load_half(p + i * kStride);
  return s;
}

template <int kBlockOf, int kBytesOf, Form kFormOf, Mins kMinsOf>
struct Layout {
  static constexpr int kBlock = kBlockOf;
  static constexpr size_t kBlockBytes = kBytesOf;
  static constexpr Form kForm = kFormOf;
  static constexpr int kBias = 0;
  static constexpr Mins kMins = kMinsOf;
};

struct FastQ8_0 : Layout<32, 34, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastQ8_0 open(const uint8_t* p) { return {{}, p, half_scales<34>(p, 1.0f)}; }
  inline B step(int j) const { return b_load(p + 34 * j + 2); }
};

struct FastQ4_0 : Layout<32, 18, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastQ4_0 open(const uint8_t* p) { return {{}, p, half_scales<18>(p, 1.0f)}; }
  inline B step(int j) const { return b_sub(nibbles_of(p + 18 * j + 2), 8); }
};

struct FastQ4_1 : Layout<32, 20, Form::kUnsigned, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ4_1 open(const uint8_t* p) {
    return {{}, p, half_scales<20>(p, 1.0f), half_scales<20>(p + 2, -1.0f)};
  }
  inline B step(int j) const { return nibbles_of(p + 20 * j + 4); }
};

struct FastQ5_0 : Layout<32, 22, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastQ5_0 open(const uint8_t* p) { return {{}, p, half_scales<22>(p, 1.0f)}; }
  inline B step(int j) const {
    const uint8_t* at = p + 22 * j;
    return b_sub(b_or(nibbles_of(at + 6), spread_bits(at + 2, 16)), 16);
  }
};

struct FastQ5_1 : Layout<32, 24, Form::kUnsigned, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ5_1 open(const uint8_t* p) {
    return {{}, p, half_scales<24>(p, 1.0f), half_scales<24>(p + 2, -1.0f)};
  }
  inline B step(int j) const {
    const uint8_t* at = p + 24 * j;
    return b_or(nibbles_of(at + 8), spread_bits(at + 4, 16));
  }
};

struct FastIQ4_NL : Layout<32, 18, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastIQ4_NL open(const uint8_t* p) { return {{}, p, half_scales<18>(p, 1.0f)}; }
  inline B step(int j) const { return look_up(kIq4Values, nibbles_of(p + 18 * j + 2)); }
};

struct FastMXFP4 : Layout<32, 17, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S8 scale;
  static inline FastMXFP4 open(const uint8_t* p) {
    FastMXFP4 unit = {{}, p, {}};
    for (int i = 0; i < 8; ++i) unit.scale.v[i] = half_of_e8m0(p[17 * i]);
    return unit;
  }
  inline B step(int j) const { return look_up(kFp4Values, nibbles_of(p + 17 * j + 1)); }
};

struct FastNVFP4 : Layout<64, 36, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S16 scale;
  static inline FastNVFP4 open(const uint8_t* p) {
    FastNVFP4 unit = {{}, p, {}};
    for (int i = 0; i < 16; ++i) unit.scale.v[i] = half_of_ue4m3(p[36 * (i / 4) + i % 4]);
    return unit;
  }
  inline B step(int j) const {
    const uint8x16_t bytes = vld1q_u8(p + 36 * (j / 2) + 4 + 16 * (j % 2));
    const uint64x2_t low = vreinterpretq_u64_u8(vandq_u8(bytes, vdupq_n_u8(15)));
    const uint64x2_t high = vreinterpretq_u64_u8(vshrq_n_u8(bytes, 4));
    return look_up(kFp4Values,
                   b_signed(vreinterpretq_u8_u64(vzip1q_u64(low, high)), vreinterpretq_u8_u64(vzip2q_u64(low, high))));
  }
};

// The 2-bit layout of Q2_K, Q3_K and TQ2_0: 32 bytes hold four groups of 32 weights.
inline B two_bits(const uint8_t* p, int j) { return b_and(shifted(p + 32 * (j / 4), 2 * (j % 4)), 3); }
// The 4-bit layout of Q4_K and Q5_K: 32 bytes hold two groups.
inline B four_bits(const uint8_t* p, int j) { return b_and(shifted(p + 32 * (j / 2), 4 * (j % 2)), 15); }

inline S16 scales_from_bytes(int8x16_t bytes, float d) {
  S16 s;
  const int16x8_t words[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)};
  for (int i = 0; i < 2; ++i) {
    vst1q_f32(s.v + 8 * i, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(words[i]))), d));
    vst1q_f32(s.v + 8 * i + 4, vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(words[i])), d));
  }
  return s;
}
inline S8 scales_from_words(uint32_t low, uint32_t high, float d) {
  const uint16x8_t words = vmovl_u8(vcreate_u8(low | static_cast<uint64_t>(high) << 32));
  S8 s;
  vst1q_f32(s.v, vmulq_n_f32(vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))), d));
  vst1q_f32(s.v + 4, vmulq_n_f32(vcvtq_f32_u32(vmovl_high_u16(words)), d));
  return s;
}

struct FastQ2_K : Layout<256, 84, Form::kUnsigned, Mins::kPer16> {
  const uint8_t* p;
  S16 scale, min;
  static inline FastQ2_K open(const uint8_t* p) {
    const uint8x16_t bytes = vld1q_u8(p);
    return {{},
            p,
            scales_from_bytes(vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15))), load_half(p + 80)),
            scales_from_bytes(vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4)), load_half(p + 82))};
  }
  inline B step(int j) const { return two_bits(p + 16, j); }
};

struct FastQ3_K : Layout<256, 110, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S16 scale;
  static inline FastQ3_K open(const uint8_t* p) {
    const uint32_t a = load_u32(p + 96);
    const uint32_t b = load_u32(p + 100);
    const uint32_t c = load_u32(p + 104);
    const uint32_t s[4] = {(a & 0x0f0f0f0fu) | (c << 4 & 0x30303030u), (b & 0x0f0f0f0fu) | (c << 2 & 0x30303030u),
                           (a >> 4 & 0x0f0f0f0fu) | (c & 0x30303030u), (b >> 4 & 0x0f0f0f0fu) | (c >> 2 & 0x30303030u)};
    const int8x16_t bytes = vsubq_s8(vreinterpretq_s8_u32(vld1q_u32(s)), vdupq_n_s8(32));
    return {{}, p, scales_from_bytes(bytes, load_half(p + 108))};
  }
  inline B step(int j) const { return b_sub(b_or(two_bits(p + 32, j), spread_plane(p, j, 4)), 4); }
};

struct KScales {
  S8 scale, min;
};
inline KScales k_scales(const uint8_t* p) {
  const uint32_t a = load_u32(p + 4);
  const uint32_t b = load_u32(p + 8);
  const uint32_t c = load_u32(p + 12);
  return {scales_from_words(a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u), load_half(p)),
          scales_from_words(b & 0x3f3f3f3fu, (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u), load_half(p + 2))};
}

struct FastQ4_K : Layout<256, 144, Form::kUnsigned, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ4_K open(const uint8_t* p) {
    const KScales s = k_scales(p);
    return {{}, p, s.scale, s.min};
  }
  inline B step(int j) const { return four_bits(p + 16, j); }
};

struct FastQ5_K : Layout<256, 176, Form::kUnsigned, Mins::kPer32> {
  const uint8_t* p;
  S8 scale, min;
  static inline FastQ5_K open(const uint8_t* p) {
    const KScales s = k_scales(p);
    return {{}, p, s.scale, s.min};
  }
  inline B step(int j) const { return b_or(four_bits(p + 48, j), spread_plane(p + 16, j, 16)); }
};

struct FastQ6_K : Layout<256, 210, Form::kSigned, Mins::kNone> {
  const uint8_t* p;
  S16 scale;
  static inline FastQ6_K open(const uint8_t* p) {
    return {{}, p, scales_from_bytes(vreinterpretq_s8_u8(vld1q_u8(p + 192)), load_half(p + 208))};
  }
  inline B step(int j) const {
    const B low = b_and(shifted(p + 64 * (j / 4) + 32 * (j % 2), 4 * (j % 4 / 2)), 15);
    const B high = b_and(shifted(p + 128 + 32 * (j / 4), 2 * (j % 4)), 3);
    return b_sub(b_or(low, {vshlq_n_s8(high.low, 4), vshlq_n_s8(high.high, 4)}), 32);
  }
};

}  // namespace
}  // namespace les
