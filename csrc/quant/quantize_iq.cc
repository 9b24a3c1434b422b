// IQ4_XS, IQ3_S and MXFP4.
#include <algorithm>
#include <array>
#include <bit>
#include <memory>

#include "base/bytes.h"
#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quantize_blocks.h"
#include "quant/quantize_super.h"

namespace les {

namespace {

struct Iq4Xs {
  static constexpr int kGroupSize = 32;
  static constexpr int kFirst = -32;
  static constexpr int kLast = 31;
  static float scale_value(int code) { return static_cast<float>(code); }
  static float scale_code(float v) { return v; }
  static float error(const float* x, const float* w, float scale) { return scale_error<Iq4Book, 32>(x, w, scale); }
  static Moments moments(const float* x, const float* w, float inverse) {
    return les::moments<Iq4Book, 32>(x, w, inverse);
  }
};

// --- IQ3_S: four magnitudes together are one of 512 points
// ------------------------------------------------------------

constexpr int kNear = 8;  // per cell; with 64 the error of normal weights is 0.1 % less

// For each of the 8^4 cells of rounded magnitudes, the points nearest to its middle; one alone if the middle is a
// point.
struct Iq3Cells {
  std::array<std::array<float, 4>, 512> points;
  std::array<std::array<uint16_t, kNear>, 4096> near;
  std::array<uint8_t, 4096> n_near;
};

std::unique_ptr<const Iq3Cells> make_iq3_cells() {
  auto cells = std::make_unique<Iq3Cells>();
  for (size_t p = 0; p < 512; ++p) {
    for (size_t k = 0; k < 4; ++k) cells->points[p][k] = static_cast<float>(kIq3SGrid.points[p] >> (8 * k) & 255);
  }
  std::array<uint32_t, 512> order;  // distance and index, so that ties fall the same way everywhere
  for (uint32_t cell = 0; cell < 4096; ++cell) {
    for (uint32_t p = 0; p < 512; ++p) {
      int distance = 0;
      for (int k = 0; k < 4; ++k) {
        const int step = static_cast<int>(kIq3SCodes[p] >> (3 * k) & 7) - static_cast<int>(cell >> (3 * k) & 7);
        distance += step * step;
      }
      order[p] = static_cast<uint32_t>(distance) << 16 | p;
    }
    std::partial_sort(order.begin(), order.begin() + kNear, order.end());
    for (size_t i = 0; i < kNear; ++i) cells->near[cell][i] = static_cast<uint16_t>(order[i] & 0xffff);
    cells->n_near[cell] = order[0] >> 16 == 0 ? 1 : kNear;
  }
  return cells;
}

const Iq3Cells& iq3_cells() {
  static const std::unique_ptr<const Iq3Cells> cells = make_iq3_cells();
  return *cells;
}

// Index of the point that errs least for four magnitudes v (in units of the scale) with weights w.
uint32_t nearest_point(const Iq3Cells& cells, F4 v, F4 w) {
  const F4 digits = round4(min4(max4((v - splat(1)) * splat(0.5f), splat(0)), splat(7)));
  const auto cell = static_cast<uint32_t>(digits[0] + 8 * digits[1] + 64 * digits[2] + 512 * digits[3]);
  const auto& near = cells.near[cell];
  uint32_t best = near[0];
  if (cells.n_near[cell] == 1) return best;
  float least = -1;
  for (const uint16_t p : near) {
    const F4 rest = v - load4(cells.points[p].data());
    const float error = sum4(w * rest * rest);
    if (least >= 0 && error >= least) continue;
    least = error;
    best = p;
  }
  return best;
}

// Over magnitudes: x is not negative.
struct Iq3S {
  static constexpr int kGroupSize = 32;
  static constexpr int kFirst = 0;
  static constexpr int kLast = 15;
  static float scale_value(int code) { return static_cast<float>(2 * code + 1); }
  static float scale_code(float v) { return (v - 1) * 0.5f; }

  static float error(const float* x, const float* w, float scale) {
    const Iq3Cells& cells = iq3_cells();
    const F4 inverse = splat(inverse_or_zero(scale));
    F4 error = splat(0);
    for (int i = 0; i < kGroupSize; i += 4) {
      const F4 v = load4(x + i), wi = load4(w + i);
      const F4 rest = v - splat(scale) * load4(cells.points[nearest_point(cells, v * inverse, wi)].data());
      error += wi * rest * rest;
    }
    return sum4(error);
  }

  static Moments moments(const float* x, const float* w, float inverse) {
    const Iq3Cells& cells = iq3_cells();
    F4 xq = splat(0), qq = splat(0);
    for (int i = 0; i < kGroupSize; i += 4) {
      const F4 v = load4(x + i), wi = load4(w + i);
      const F4 q = load4(cells.points[nearest_point(cells, v * splat(inverse), wi)].data());
      xq += wi * q * v;
      qq += wi * q * q;
    }
    return {sum4(xq), sum4(qq)};
  }

  static float fit(const float* x, const float* w) {
    constexpr int kSteps = 7;
    const float peak = peak_of<kGroupSize>(x);
    if (peak == 0) return 0;
    float best_gain = 0, best = 0;
    for (int step = 0; step < kSteps; ++step) {
      const float target = 10.0f + static_cast<float>(step) * 1.2f;
      const Moments m = moments(x, w, target / peak);
      if (m.xq * m.xq <= best_gain * m.qq) continue;
      best_gain = m.xq * m.xq / m.qq;
      best = m.xq / m.qq;
    }
    const Moments m = moments(x, w, inverse_or_zero(best));
    return m.qq > 0 ? m.xq / m.qq : best;
  }
};

// --- MXFP4
// ------------------------------------------------------------------------------------------------------------

// Twice the magnitude of each code.
constexpr float kFp4Doubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};

int fp4_code(float magnitude) {
  int at = 0;
  for (int i = 0; i < 7; ++i) at += magnitude > (kFp4Doubled[i] + kFp4Doubled[i + 1]) * 0.5f ? 1 : 0;
  return at;
}

// 2^n of a normal float.
float pow2(int n) { return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23); }

}  // namespace

void encode_iq4_xs(const float* x, const float* w, uint8_t* out) {
  float fits[8];
  for (int g = 0; g < 8; ++g) fits[g] = fit_scale<Iq4Book, 32>(x + 32 * g, w + 32 * g, 0.8f, 1.15f, 11);
  const ScaleChoice choice = choose_scales<Iq4Xs>(x, w, fits, {-32.0f, 31.0f, -29.0f});
  uint32_t high = 0;
  for (int g = 0; g < 8; ++g) {
    const float inverse = inverse_or_zero(half_to_float(choice.d) * static_cast<float>(choice.codes[g]));
    const float* xg = x + 32 * g;
    for (int i = 0; i < 16; ++i) {
      out[8 + 16 * g + i] =
          static_cast<uint8_t>(Iq4Book::index(xg[i] * inverse) | Iq4Book::index(xg[i + 16] * inverse) << 4);
    }
    high |= static_cast<uint32_t>(choice.codes[g] + 32) >> 4 << (2 * g);
  }
  for (int i = 0; i < 4; ++i) {
    out[4 + i] = static_cast<uint8_t>(((choice.codes[2 * i] + 32) & 15) | ((choice.codes[2 * i + 1] + 32) & 15) << 4);
  }
  store_le(out, choice.d);
  store_le(out + 2, static_cast<uint16_t>(high));
}

void encode_iq3_s(const float* x, const float* w, uint8_t* out) {
  float magnitudes[256];
  for (int i = 0; i < 256; ++i) magnitudes[i] = std::fabs(x[i]);
  float fits[8];
  for (int g = 0; g < 8; ++g) fits[g] = Iq3S::fit(magnitudes + 32 * g, w + 32 * g);
  const ScaleChoice choice = choose_scales<Iq3S>(magnitudes, w, fits, {31.0f, 28.0f});
  const Iq3Cells& cells = iq3_cells();
  std::memset(out, 0, 110);
  store_le(out, choice.d);
  for (int g = 0; g < 8; ++g) {
    const F4 inverse = splat(inverse_or_zero(half_to_float(choice.d) * Iq3S::scale_value(choice.codes[g])));
    for (int i = 0; i < 8; ++i) {
      const int at = 32 * g + 4 * i;
      const uint32_t point = nearest_point(cells, load4(magnitudes + at) * inverse, load4(w + at));
      out[2 + 8 * g + i] = static_cast<uint8_t>(point & 255);
      out[66 + g] |= static_cast<uint8_t>(point >> 8 << i);
      for (int k = 0; k < 4; ++k) out[74 + at / 8] |= static_cast<uint8_t>((x[at + k] < 0 ? 1 : 0) << (i % 2 * 4 + k));
    }
    out[106 + g / 2] |= static_cast<uint8_t>(choice.codes[g] << (g % 2 * 4));
  }
}

void encode_mxfp4(const float* x, const float* w, uint8_t* out) {
  std::memset(out, 0, 17);
  const float peak = peak_of<32>(x);
  if (peak == 0) return;
  // The largest code is 12 in half units: these put the peak from 12 (rounded from up to 16) down to 2.
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(peak) >> 23) - 127;
  float least = -1;
  int best = 0;
  for (int n = exponent - 4; n <= exponent - 1; ++n) {
    const float scale = pow2(n), inverse = pow2(-n);
    float error = 0;
    for (int i = 0; i < 32; ++i) {
      const float magnitude = std::fabs(x[i]);
      const float rest = magnitude - scale * kFp4Doubled[fp4_code(magnitude * inverse)];
      error += w[i] * rest * rest;
    }
    if (least >= 0 && error >= least) continue;
    least = error;
    best = n;
  }
  out[0] = static_cast<uint8_t>(best + 128);
  const float inverse = pow2(-best);
  for (int i = 0; i < 32; ++i) {
    int code = fp4_code(std::fabs(x[i]) * inverse);
    if (code != 0 && x[i] < 0) code |= 8;
    out[1 + i % 16] |= static_cast<uint8_t>(code << (i / 16 * 4));
  }
}

}  // namespace les
