#include "quant/codec_iq.h"

#include <bit>

#include "base/bytes.h"
#include "quant/half.h"
#include "quant/iq_grids.h"

namespace les {

namespace {

float half_at(const uint8_t* p) { return half_to_float(load_le<uint16_t>(p)); }

// Seven sign bits are stored; the eighth makes their number even.
uint32_t with_parity(uint32_t seven) {
  seven &= 127;
  return seven | static_cast<uint32_t>(std::popcount(seven) & 1) << 7;
}

template <int kCount, typename Point>
float* put_point(Point point, uint32_t signs, float scale, float* out) {
  for (int k = 0; k < kCount; ++k) {
    const auto magnitude = static_cast<float>(point >> (8 * k) & 255);
    *out++ = scale * ((signs >> k & 1) != 0 ? -magnitude : magnitude);
  }
  return out;
}

// Eight ternary weights, all shifted by an eighth up or down.
float* put_ternary(uint64_t point, bool is_down, float scale, float* out) {
  for (int k = 0; k < 8; ++k) {
    const auto eighths = static_cast<float>(static_cast<int8_t>(point >> (8 * k) & 255)) * 0.125f;
    *out++ = scale * (eighths + (is_down ? -0.125f : 0.125f));
  }
  return out;
}

float odd(uint32_t bits) { return static_cast<float>(2 * bits + 1); }

}  // namespace

void decode_iq2_xxs(const uint8_t* p, float* out) {
  const float d = half_at(p) * 0.125f;
  for (int g = 0; g < 8; ++g) {
    const uint8_t* codes = p + 2 + 8 * g;
    const auto signs = load_le<uint32_t>(codes + 4);
    const float scale = d * odd(signs >> 28);
    for (int i = 0; i < 4; ++i)
      out = put_point<8>(kIq2XxsGrid.points[codes[i]], with_parity(signs >> (7 * i)), scale, out);
  }
}

void decode_iq2_xs(const uint8_t* p, float* out) {
  const float d = half_at(p) * 0.125f;
  for (int i = 0; i < 32; ++i) {
    const uint32_t code = load_le<uint16_t>(p + 2 + 2 * i);
    const float scale = d * odd(p[66 + i / 4] >> (i / 2 % 2 * 4) & 15);
    out = put_point<8>(kIq2XsGrid.points[code & 511], with_parity(code >> 9), scale, out);
  }
}

void decode_iq2_s(const uint8_t* p, float* out) {
  const float d = half_at(p) * 0.125f;
  for (int i = 0; i < 32; ++i) {
    const uint32_t index = p[2 + i] | static_cast<uint32_t>(p[66 + i / 4] >> (i % 4 * 2) & 3) << 8;
    const float scale = d * odd(p[74 + i / 4] >> (i / 2 % 2 * 4) & 15);
    out = put_point<8>(kIq2SGrid.points[index], p[34 + i], scale, out);
  }
}

void decode_iq3_xxs(const uint8_t* p, float* out) {
  const float d = half_at(p) * 0.25f;
  for (int g = 0; g < 8; ++g) {
    const auto signs = load_le<uint32_t>(p + 66 + 4 * g);
    const float scale = d * odd(signs >> 28);
    for (int i = 0; i < 8; ++i) {
      out = put_point<4>(kIq3XxsGrid.points[p[2 + 8 * g + i]], with_parity(signs >> (7 * (i / 2))) >> (i % 2 * 4),
                         scale, out);
    }
  }
}

void decode_iq3_s(const uint8_t* p, float* out) {
  const float d = half_at(p);
  for (int g = 0; g < 8; ++g) {
    const float scale = d * odd(p[106 + g / 2] >> (g % 2 * 4) & 15);
    for (int i = 0; i < 8; ++i) {
      const uint32_t index = p[2 + 8 * g + i] | static_cast<uint32_t>(p[66 + g] >> i & 1) << 8;
      out = put_point<4>(kIq3SGrid.points[index], static_cast<uint32_t>(p[74 + 4 * g + i / 2]) >> (i % 2 * 4), scale,
                         out);
    }
  }
}

void decode_iq1_s(const uint8_t* p, float* out) {
  const float d = half_at(p);
  for (int g = 0; g < 8; ++g) {
    const uint32_t high = load_le<uint16_t>(p + 34 + 2 * g);
    const float scale = d * odd(high >> 12 & 7);
    for (int i = 0; i < 4; ++i) {
      const uint32_t index = p[2 + 4 * g + i] | (high >> (3 * i) & 7) << 8;
      out = put_ternary(kIq1Grid.points[index], (high & 0x8000) != 0, scale, out);
    }
  }
}

void decode_iq1_m(const uint8_t* p, float* out) {
  uint32_t bits = 0;  // the block's half scale lies in the top nibbles of the four scale words
  for (int i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(p[49 + 2 * i] >> 4) << (4 * i);
  const float d = half_to_float(static_cast<uint16_t>(bits));
  for (int g = 0; g < 16; ++g) {
    const float scale = d * odd(static_cast<uint32_t>(load_le<uint16_t>(p + 48 + g / 4 * 2)) >> (g % 4 * 3) & 7);
    for (int i = 0; i < 2; ++i) {
      const uint32_t high = static_cast<uint32_t>(p[32 + g]) >> (4 * i) & 15;
      out = put_ternary(kIq1Grid.points[p[2 * g + i] | (high & 7) << 8], (high & 8) != 0, scale, out);
    }
  }
}

// Five ternary digits a byte, as a fraction of 256 in base three: multiplying by 3^k moves digit k to the front.
void decode_tq1_0(const uint8_t* p, float* out) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  const float d = half_at(p + 52);
  const auto put = [&](const uint8_t* bytes, int n_bytes, int n_digits) {
    for (int k = 0; k < n_digits; ++k) {
      for (int i = 0; i < n_bytes; ++i) {
        const auto moved = static_cast<uint8_t>(bytes[i] * kPowers[k]);
        *out++ = static_cast<float>((moved * 3 >> 8) - 1) * d;
      }
    }
  };
  put(p, 32, 5);
  put(p + 32, 16, 5);
  put(p + 48, 4, 4);
}

void decode_tq2_0(const uint8_t* p, float* out) {
  const float d = half_at(p + 64);
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 4; ++k) {
      for (int i = 0; i < 32; ++i) *out++ = static_cast<float>((p[32 * half + i] >> (2 * k) & 3) - 1) * d;
    }
  }
}

namespace {

// An unsigned float of 4 exponent and 3 mantissa bits, bias 7; 0x7f is no number and counts as zero.
float ue4m3(uint8_t v) {
  if (v == 0 || v == 0x7f) return 0;
  const int exponent = v >> 3 & 15;
  const auto mantissa = static_cast<float>(v & 7);
  if (exponent == 0) return mantissa * 0x1p-9f;
  return (1 + mantissa * 0.125f) * std::bit_cast<float>(static_cast<uint32_t>(exponent - 7 + 127) << 23);
}

}  // namespace

void decode_nvfp4(const uint8_t* p, float* out) {
  constexpr float kValues[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (int g = 0; g < 4; ++g, out += 16) {
    const float d = ue4m3(p[g]);
    for (int i = 0; i < 8; ++i) {
      out[i] = d * kValues[p[4 + 8 * g + i] & 15];
      out[i + 8] = d * kValues[p[4 + 8 * g + i] >> 4];
    }
  }
}

}  // namespace les
