// Blocks of 256 whose groups have small integer scales under one half-precision scale: choosing both together.
#pragma once

#include <cstdint>

#include "quant/half.h"
#include "quant/quantize_fit.h"

namespace les {

constexpr float kHalfMax = 65504.0f;

// Nearest half that is finite.
inline uint16_t finite_half(float v) { return float_to_half(v > kHalfMax ? kHalfMax : v < -kHalfMax ? -kHalfMax : v); }

// Without NaN, for values that may be far off.
inline int round_clamped(float v, int low, int high) {
  const float r = v > static_cast<float>(low) ? v : static_cast<float>(low);
  return static_cast<int>(round1(r < static_cast<float>(high) ? r : static_cast<float>(high)));
}

// A type whose groups are d * Type::scale_value(code) * book code:
//   kGroupSize; kFirst, kLast: range of the scale codes; scale_value(code); scale_code(v): its inverse, unrounded;
//   error(x, w, scale), moments(x, w, inverse): as in quantize_fit.h.
struct ScaleChoice {
  uint16_t d = 0;
  int codes[256 / 16] = {};
};

// The codes nearest to the fitted scales, or a neighbour where that errs less. Returns the block's error.
template <typename Type>
double choose_codes(const float* x, const float* w, const float* fits, bool has_fits, ScaleChoice* choice) {
  const float d = half_to_float(choice->d), inverse = inverse_or_zero(d);
  double total = 0;
  for (int g = 0; g < 256 / Type::kGroupSize; ++g) {
    const float *xg = x + g * Type::kGroupSize, *wg = w + g * Type::kGroupSize;
    const int near =
        has_fits ? round_clamped(Type::scale_code(fits[g] * inverse), Type::kFirst, Type::kLast) : choice->codes[g];
    float least = -1;
    for (int code = near - 1; code <= near + 1; ++code) {
      if (code < Type::kFirst || code > Type::kLast) continue;
      const float error = Type::error(xg, wg, d * Type::scale_value(code));
      if (least >= 0 && error >= least) continue;
      least = error;
      choice->codes[g] = code;
    }
    total += static_cast<double>(least);
  }
  return total;
}

// The d that suits the chosen codes best.
template <typename Type>
float refit(const float* x, const float* w, const ScaleChoice& choice) {
  const float d = half_to_float(choice.d);
  double xq = 0, qq = 0;
  for (int g = 0; g < 256 / Type::kGroupSize; ++g) {
    const auto value = static_cast<double>(Type::scale_value(choice.codes[g]));
    const Moments m = Type::moments(x + g * Type::kGroupSize, w + g * Type::kGroupSize,
                                    inverse_or_zero(d * Type::scale_value(choice.codes[g])));
    xq += value * static_cast<double>(m.xq);
    qq += value * value * static_cast<double>(m.qq);
  }
  return qq > 0 ? static_cast<float>(xq / qq) : d;
}

// fits: the best scale of each group. peaks: scale values that the largest fit may take, each tried as a start.
template <typename Type, int kPeaks>
ScaleChoice choose_scales(const float* x, const float* w, const float* fits, const float (&peaks)[kPeaks]) {
  float peak = 0;
  for (int g = 0; g < 256 / Type::kGroupSize; ++g) {
    if (std::fabs(fits[g]) > std::fabs(peak)) peak = fits[g];
  }
  ScaleChoice best;
  double least = -1;
  const auto consider = [&](const ScaleChoice& choice, double error) {
    if (least >= 0 && error >= least) return false;
    least = error;
    best = choice;
    return true;
  };
  for (const float at : peaks) {
    ScaleChoice choice;
    choice.d = finite_half(peak / at);
    const double error = choose_codes<Type>(x, w, fits, true, &choice);
    consider(choice, error);
  }
  for (int round = 0; round < 2; ++round) {
    ScaleChoice choice = best;
    choice.d = finite_half(refit<Type>(x, w, best));
    if (choice.d == best.d) break;
    const double error = choose_codes<Type>(x, w, fits, false, &choice);
    if (!consider(choice, error)) break;
  }
  return best;
}

}  // namespace les
