// Searches that the block writers share: the scale, or scale and offset, that give the least weighted squared error.
// x and w hold N values and their weights, N a multiple of 4. Pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "quant/lanes.h"

namespace les {

// Codes kLow..kHigh stand for themselves.
template <int kLow, int kHigh>
struct UniformBook {
  static constexpr float kPeak = kHigh > -kLow ? kHigh : -kLow;
  static constexpr bool kIsSymmetric = kHigh == -kLow;
  static F4 nearest(F4 v) { return round4(min4(max4(v, splat(kLow)), splat(kHigh))); }
};

// Sixteen levels, closer together near zero.
struct Iq4Book {
  static constexpr float kPeak = 127;
  static constexpr bool kIsSymmetric = false;
  static constexpr float kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  static F4 nearest(F4 v) {
    F4 level = splat(kLevels[0]);
    for (int i = 0; i < 15; ++i) {
      const float middle = (kLevels[i] + kLevels[i + 1]) * 0.5f;
      level += v > splat(middle) ? splat(kLevels[i + 1] - kLevels[i]) : splat(0.0f);
    }
    return level;
  }
  // Which level nearest() takes.
  static uint8_t index(float v) {
    int at = 0;
    for (int i = 0; i < 15; ++i) at += v > (kLevels[i] + kLevels[i + 1]) * 0.5f ? 1 : 0;
    return static_cast<uint8_t>(at);
  }
};

struct Moments {
  float xq = 0;  // sum of w x q
  float qq = 0;  // sum of w q q
};

template <typename Book, int N>
Moments moments(const float* x, const float* w, float inverse) {
  F4 xq = splat(0), qq = splat(0);
  for (int i = 0; i < N; i += 4) {
    const F4 v = load4(x + i);
    const F4 q = Book::nearest(v * splat(inverse));
    const F4 wq = load4(w + i) * q;
    xq += wq * v;
    qq += wq * q;
  }
  return {sum4(xq), sum4(qq)};
}

// Weighted squared error of the nearest codes under a scale.
template <typename Book, int N>
float scale_error(const float* x, const float* w, float scale) {
  const F4 inverse = splat(inverse_or_zero(scale));
  F4 error = splat(0);
  for (int i = 0; i < N; i += 4) {
    const F4 v = load4(x + i);
    const F4 rest = v - splat(scale) * Book::nearest(v * inverse);
    error += load4(w + i) * rest * rest;
  }
  return sum4(error);
}

template <int N>
float peak_of(const float* x) {
  float peak = 0;
  for (int i = 0; i < N; ++i) peak = std::fabs(x[i]) > peak ? std::fabs(x[i]) : peak;
  return peak;
}

// The best scale of either sign. Candidates put the largest value near the book's peak, from beyond (clipped) to below.
template <typename Book, int N>
float fit_scale(const float* x, const float* w, float first, float last, int n_steps) {
  const float peak = peak_of<N>(x);
  if (peak == 0) return 0;
  float best_gain = 0, best = 0;
  for (int step = 0; step < n_steps; ++step) {
    const float target =
        Book::kPeak * (first + (last - first) * static_cast<float>(step) / static_cast<float>(n_steps - 1));
    for (const float sign : {1.0f, -1.0f}) {
      const Moments m = moments<Book, N>(x, w, sign * target / peak);
      // With the best scale for these codes the error is sum(w x x) less this gain.
      if (m.qq > 0 && m.xq * m.xq > best_gain * m.qq) {
        best_gain = m.xq * m.xq / m.qq;
        best = m.xq / m.qq;
      }
      if (Book::kIsSymmetric) break;
    }
  }
  for (int round = 0; round < 2; ++round) {
    const Moments m = moments<Book, N>(x, w, inverse_or_zero(best));
    if (m.qq > 0) best = m.xq / m.qq;
  }
  return best;
}

// x is about scale * q + low, q from 0 to kHigh.
struct Affine {
  float scale = 0;
  float low = 0;
};

// Codes under (inverse, low), the least-squares line through them, and its error with these codes.
template <int kHigh, int N, bool kLowIsNegative>
float fit_line(const float* x, const float* w, float inverse, float low, Affine* line) {
  F4 codes[N / 4];
  F4 sw = splat(0), sx = splat(0), sq = splat(0), sqq = splat(0), sxq = splat(0);
  for (int i = 0; i < N; i += 4) {
    const F4 v = load4(x + i), wi = load4(w + i);
    const F4 q = UniformBook<0, kHigh>::nearest((v - splat(low)) * splat(inverse));
    codes[i / 4] = q;
    const F4 wq = wi * q;
    sw += wi;
    sx += wi * v;
    sq += wq;
    sqq += wq * q;
    sxq += wq * v;
  }
  const float w1 = sum4(sw), x1 = sum4(sx), q1 = sum4(sq), qq = sum4(sqq), xq = sum4(sxq);
  const float det = w1 * qq - q1 * q1;
  *line = {0, x1 / w1};
  if (det > 1e-6f * w1 * qq) *line = {(w1 * xq - q1 * x1) / det, (qq * x1 - q1 * xq) / det};
  if (kLowIsNegative && line->low > 0) *line = {qq > 0 ? xq / qq : 0, 0};
  F4 error = splat(0);
  for (int i = 0; i < N; i += 4) {
    const F4 rest = load4(x + i) - splat(line->scale) * codes[i / 4] - splat(line->low);
    error += load4(w + i) * rest * rest;
  }
  return sum4(error);
}

// The best line: ranges from wider to narrower than the data, clipped on either side or both, then refined.
template <int kHigh, int N, bool kLowIsNegative>
Affine fit_affine(const float* x, const float* w, float first, float last, int n_steps) {
  float low = x[0], high = x[0];
  for (int i = 1; i < N; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  if (kLowIsNegative && low > 0) low = 0;
  Affine best = {0, kLowIsNegative && low > 0 ? 0 : low};
  if (high - low <= 0) return best;
  float least = -1;
  for (int step = 0; step < n_steps; ++step) {
    const float target = first + (last - first) * static_cast<float>(step) / static_cast<float>(n_steps - 1);
    const float inverse = target / (high - low);
    const float clipped = target > kHigh ? (target - kHigh) / inverse : 0;
    for (const float share : {0.0f, 0.5f, 1.0f}) {
      Affine line;
      const float error = fit_line<kHigh, N, kLowIsNegative>(x, w, inverse, low + share * clipped, &line);
      if ((least < 0 || error < least) && line.scale >= 0) {
        least = error;
        best = line;
      }
      if (clipped == 0) break;
    }
  }
  for (int round = 0; round < 3; ++round) {
    Affine line;
    const float error = fit_line<kHigh, N, kLowIsNegative>(x, w, inverse_or_zero(best.scale), best.low, &line);
    if (error >= least || line.scale < 0) break;
    least = error;
    best = line;
  }
  return best;
}

template <int kHigh, int N>
float affine_error(const float* x, const float* w, Affine line) {
  const F4 inverse = splat(inverse_or_zero(line.scale));
  F4 error = splat(0);
  for (int i = 0; i < N; i += 4) {
    const F4 v = load4(x + i);
    const F4 q = UniformBook<0, kHigh>::nearest((v - splat(line.low)) * inverse);
    const F4 rest = v - splat(line.scale) * q - splat(line.low);
    error += load4(w + i) * rest * rest;
  }
  return sum4(error);
}

}  // namespace les
