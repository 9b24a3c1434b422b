#include "quant/codec.h"

#include <array>
#include <bit>

#include "base/bytes.h"
#include "quant/codec_iq.h"
#include "quant/half.h"

namespace les {

namespace {

float half_at(const uint8_t* p) { return half_to_float(load_le<uint16_t>(p)); }

// --- plain numbers ---------------------------------------------------------------------------------------------------

void decode_f32(const uint8_t* p, int64_t n, float* out) {
  std::memcpy(out, p, static_cast<size_t>(n) * sizeof(float));
}
void decode_f16(const uint8_t* p, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = half_at(p + 2 * i);
}
void decode_bf16(const uint8_t* p, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = bfloat_to_float(load_le<uint16_t>(p + 2 * i));
}

// A block decoder in a loop over the row.
template <int kElements, int kBytes, void (*kDecode)(const uint8_t*, float*)>
void decode_row(const uint8_t* p, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kElements, p += kBytes) kDecode(p, out + i);
}

// --- blocks of 32 ----------------------------------------------------------------------------------------------------

void q4_0(const uint8_t* p, float* out) {
  const float d = half_at(p);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>((p[2 + i] & 15) - 8) * d;
    out[i + 16] = static_cast<float>((p[2 + i] >> 4) - 8) * d;
  }
}

void q4_1(const uint8_t* p, float* out) {
  const float d = half_at(p), m = half_at(p + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(p[4 + i] & 15) * d + m;
    out[i + 16] = static_cast<float>(p[4 + i] >> 4) * d + m;
  }
}

void q5_0(const uint8_t* p, float* out) {
  const float d = half_at(p);
  const auto high = load_le<uint32_t>(p + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(static_cast<int>((p[6 + i] & 15) | ((high >> i & 1) << 4)) - 16) * d;
    out[i + 16] = static_cast<float>(static_cast<int>((p[6 + i] >> 4) | ((high >> (i + 16) & 1) << 4)) - 16) * d;
  }
}

void q5_1(const uint8_t* p, float* out) {
  const float d = half_at(p), m = half_at(p + 2);
  const auto high = load_le<uint32_t>(p + 4);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>((p[8 + i] & 15) | ((high >> i & 1) << 4)) * d + m;
    out[i + 16] = static_cast<float>((p[8 + i] >> 4) | ((high >> (i + 16) & 1) << 4)) * d + m;
  }
}

void q8_0(const uint8_t* p, float* out) {
  const float d = half_at(p);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(p[2 + i])) * d;
}

constexpr std::array<int8_t, 16> kIq4 = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr std::array<int8_t, 16> kFp4Doubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void iq4_nl(const uint8_t* p, float* out) {
  const float d = half_at(p);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIq4[p[2 + i] & 15]);
    out[i + 16] = d * static_cast<float>(kIq4[p[2 + i] >> 4]);
  }
}

// 2^(e - 128): half of the block's scale, for the doubled code book.
float half_e8m0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

void mxfp4(const uint8_t* p, float* out) {
  const float d = half_e8m0(p[0]);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kFp4Doubled[p[1 + i] & 15]);
    out[i + 16] = d * static_cast<float>(kFp4Doubled[p[1 + i] >> 4]);
  }
}

// --- blocks of 256 ---------------------------------------------------------------------------------------------------

void q2_k(const uint8_t* p, float* out) {
  const uint8_t *scales = p, *qs = p + 16;
  const float d = half_at(p + 80), m = half_at(p + 82);
  for (int half = 0; half < 2; ++half) {
    for (int shift = 0; shift < 4; ++shift) {
      for (int part = 0; part < 2; ++part) {
        const uint8_t s = scales[half * 8 + shift * 2 + part];
        const float dl = d * static_cast<float>(s & 15), ml = m * static_cast<float>(s >> 4);
        for (int i = 0; i < 16; ++i)
          *out++ = dl * static_cast<float>(qs[half * 32 + part * 16 + i] >> (2 * shift) & 3) - ml;
      }
    }
  }
}

// The sixteen 6-bit scales of Q3_K, each in two parts.
int q3_k_scale(const uint8_t* s, int i) {
  const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
  const int high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
  return (low | high << 4) - 32;
}

void q3_k(const uint8_t* p, float* out) {
  const uint8_t *high = p, *qs = p + 32, *scales = p + 96;
  const float d = half_at(p + 108);
  for (int half = 0; half < 2; ++half) {
    for (int shift = 0; shift < 4; ++shift) {
      for (int part = 0; part < 2; ++part) {
        const float dl = d * static_cast<float>(q3_k_scale(scales, half * 8 + shift * 2 + part));
        for (int i = 0; i < 16; ++i) {
          const int at = part * 16 + i;
          const int low = qs[half * 32 + at] >> (2 * shift) & 3;
          const int missing = (high[at] >> (half * 4 + shift) & 1) != 0 ? 0 : 4;
          *out++ = dl * static_cast<float>(low - missing);
        }
      }
    }
  }
}

// Scale and minimum j of the eight in a Q4_K or Q5_K block, six bits each.
void k4_scale(const uint8_t* s, int j, int* scale, int* minimum) {
  if (j < 4) {
    *scale = s[j] & 63;
    *minimum = s[j + 4] & 63;
  } else {
    *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    *minimum = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
  }
}

void q4_k(const uint8_t* p, float* out) {
  const float d = half_at(p), m = half_at(p + 2);
  const uint8_t *scales = p + 4, *qs = p + 16;
  for (int j = 0; j < 8; ++j) {
    int scale = 0, minimum = 0;
    k4_scale(scales, j, &scale, &minimum);
    const float dl = d * static_cast<float>(scale), ml = m * static_cast<float>(minimum);
    for (int i = 0; i < 32; ++i) *out++ = dl * static_cast<float>(qs[j / 2 * 32 + i] >> (4 * (j % 2)) & 15) - ml;
  }
}

void q5_k(const uint8_t* p, float* out) {
  const float d = half_at(p), m = half_at(p + 2);
  const uint8_t *scales = p + 4, *high = p + 16, *qs = p + 48;
  for (int j = 0; j < 8; ++j) {
    int scale = 0, minimum = 0;
    k4_scale(scales, j, &scale, &minimum);
    const float dl = d * static_cast<float>(scale), ml = m * static_cast<float>(minimum);
    for (int i = 0; i < 32; ++i) {
      const int q = (qs[j / 2 * 32 + i] >> (4 * (j % 2)) & 15) | (high[i] >> j & 1) << 4;
      *out++ = dl * static_cast<float>(q) - ml;
    }
  }
}

void q6_k(const uint8_t* p, float* out) {
  const uint8_t *low = p, *high = p + 128;
  const auto* scales = reinterpret_cast<const int8_t*>(p + 192);
  const float d = half_at(p + 208);
  for (int half = 0; half < 2; ++half) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        const int nibble = low[half * 64 + (quarter % 2) * 32 + i] >> (4 * (quarter / 2)) & 15;
        const int q = (nibble | (high[half * 32 + i] >> (2 * quarter) & 3) << 4) - 32;
        *out++ = d * static_cast<float>(scales[half * 8 + quarter * 2 + i / 16]) * static_cast<float>(q);
      }
    }
  }
}

void iq4_xs(const uint8_t* p, float* out) {
  const float d = half_at(p);
  const auto high = load_le<uint16_t>(p + 2);
  const uint8_t *low = p + 4, *qs = p + 8;
  for (int j = 0; j < 8; ++j) {
    const int scale = ((low[j / 2] >> (4 * (j % 2)) & 15) | (high >> (2 * j) & 3) << 4) - 32;
    const float dl = d * static_cast<float>(scale);
    for (int i = 0; i < 16; ++i) {
      out[i] = dl * static_cast<float>(kIq4[qs[j * 16 + i] & 15]);
      out[i + 16] = dl * static_cast<float>(kIq4[qs[j * 16 + i] >> 4]);
    }
    out += 32;
  }
}

}  // namespace

DequantizeFn dequantizer(QType type) {
  switch (type) {
    case QType::kF32: return decode_f32;
    case QType::kF16: return decode_f16;
    case QType::kBF16: return decode_bf16;
    case QType::kQ4_0: return decode_row<32, 18, q4_0>;
    case QType::kQ4_1: return decode_row<32, 20, q4_1>;
    case QType::kQ5_0: return decode_row<32, 22, q5_0>;
    case QType::kQ5_1: return decode_row<32, 24, q5_1>;
    case QType::kQ8_0: return decode_row<32, 34, q8_0>;
    case QType::kIQ4_NL: return decode_row<32, 18, iq4_nl>;
    case QType::kMXFP4: return decode_row<32, 17, mxfp4>;
    case QType::kQ2_K: return decode_row<256, 84, q2_k>;
    case QType::kQ3_K: return decode_row<256, 110, q3_k>;
    case QType::kQ4_K: return decode_row<256, 144, q4_k>;
    case QType::kQ5_K: return decode_row<256, 176, q5_k>;
    case QType::kQ6_K: return decode_row<256, 210, q6_k>;
    case QType::kIQ4_XS: return decode_row<256, 136, iq4_xs>;
    case QType::kIQ2_XXS: return decode_row<256, 66, decode_iq2_xxs>;
    case QType::kIQ2_XS: return decode_row<256, 74, decode_iq2_xs>;
    case QType::kIQ2_S: return decode_row<256, 82, decode_iq2_s>;
    case QType::kIQ3_XXS: return decode_row<256, 98, decode_iq3_xxs>;
    case QType::kIQ3_S: return decode_row<256, 110, decode_iq3_s>;
    case QType::kIQ1_S: return decode_row<256, 50, decode_iq1_s>;
    case QType::kIQ1_M: return decode_row<256, 56, decode_iq1_m>;
    case QType::kTQ1_0: return decode_row<256, 54, decode_tq1_0>;
    case QType::kTQ2_0: return decode_row<256, 66, decode_tq2_0>;
    case QType::kNVFP4: return decode_row<64, 36, decode_nvfp4>;
    default: return nullptr;
  }
}

}  // namespace les
