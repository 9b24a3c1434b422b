// Q2_K to Q6_K.
#include "base/bytes.h"
#include "quant/half.h"
#include "quant/quantize_blocks.h"
#include "quant/quantize_super.h"

namespace les {

namespace {

// Groups are d * scale * code - dmin * minimum.
template <int kHigh_, int kGroupSize_, int kScaleMax_>
struct AffineType {
  static constexpr int kHigh = kHigh_;
  static constexpr int kGroupSize = kGroupSize_;
  static constexpr int kGroups = 256 / kGroupSize_;
  static constexpr int kScaleMax = kScaleMax_;
};

template <typename Type>
struct AffineChoice {
  uint16_t d = 0, dmin = 0;
  int scales[Type::kGroups] = {};
  int minima[Type::kGroups] = {};

  Affine line(int g) const {
    return {half_to_float(d) * static_cast<float>(scales[g]), -(half_to_float(dmin) * static_cast<float>(minima[g]))};
  }
};

// Moves each group's scale and minimum to the best of the nine around them. Returns the block's error.
template <typename Type>
double settle(const float* x, const float* w, AffineChoice<Type>* choice) {
  double total = 0;
  for (int g = 0; g < Type::kGroups; ++g) {
    const int scale = choice->scales[g], minimum = choice->minima[g];
    AffineChoice<Type> trial = *choice;
    float least = -1;
    for (int s = scale - 1; s <= scale + 1; ++s) {
      for (int m = minimum - 1; m <= minimum + 1; ++m) {
        if (s < 0 || s > Type::kScaleMax || m < 0 || m > Type::kScaleMax) continue;
        trial.scales[g] = s;
        trial.minima[g] = m;
        const float error = affine_error<Type::kHigh, Type::kGroupSize>(x + g * Type::kGroupSize,
                                                                        w + g * Type::kGroupSize, trial.line(g));
        if (least >= 0 && error >= least) continue;
        least = error;
        choice->scales[g] = s;
        choice->minima[g] = m;
      }
    }
    total += static_cast<double>(least);
  }
  return total;
}

// d and dmin that suit the chosen codes best.
template <typename Type>
void refit_affine(const float* x, const float* w, AffineChoice<Type>* choice) {
  double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;  // a: scale * code, b: minimum
  for (int g = 0; g < Type::kGroups; ++g) {
    const Affine line = choice->line(g);
    const F4 inverse = splat(inverse_or_zero(line.scale));
    F4 sw = splat(0), sx = splat(0), sq = splat(0), sqq = splat(0), sxq = splat(0);
    for (int i = g * Type::kGroupSize; i < (g + 1) * Type::kGroupSize; i += 4) {
      const F4 v = load4(x + i), wi = load4(w + i);
      const F4 q = UniformBook<0, Type::kHigh>::nearest((v - splat(line.low)) * inverse);
      sw += wi;
      sx += wi * v;
      sq += wi * q;
      sqq += wi * q * q;
      sxq += wi * q * v;
    }
    const double s = choice->scales[g], m = choice->minima[g];
    aa += s * s * static_cast<double>(sum4(sqq));
    ab += s * m * static_cast<double>(sum4(sq));
    bb += m * m * static_cast<double>(sum4(sw));
    xa += s * static_cast<double>(sum4(sxq));
    xb += m * static_cast<double>(sum4(sx));
  }
  const double det = aa * bb - ab * ab;
  if (det > 1e-9 * aa * bb) {
    const double d = (xa * bb - xb * ab) / det, dmin = (xa * ab - xb * aa) / det;
    if (d >= 0 && dmin >= 0) {
      choice->d = finite_half(static_cast<float>(d));
      choice->dmin = finite_half(static_cast<float>(dmin));
    }
  } else if (aa > 0 && xa > 0 && bb == 0) {
    choice->d = finite_half(static_cast<float>(xa / aa));
  }
}

template <typename Type>
AffineChoice<Type> choose_affine(const float* x, const float* w, float first, float last, int n_steps) {
  Affine fits[Type::kGroups];
  float scale_peak = 0, low_peak = 0;
  for (int g = 0; g < Type::kGroups; ++g) {
    fits[g] = fit_affine<Type::kHigh, Type::kGroupSize, true>(x + g * Type::kGroupSize, w + g * Type::kGroupSize, first,
                                                              last, n_steps);
    scale_peak = fits[g].scale > scale_peak ? fits[g].scale : scale_peak;
    low_peak = -fits[g].low > low_peak ? -fits[g].low : low_peak;
  }
  AffineChoice<Type> best;
  best.d = finite_half(scale_peak / Type::kScaleMax);
  best.dmin = finite_half(low_peak / Type::kScaleMax);
  const float inverse = inverse_or_zero(half_to_float(best.d)), inverse_min = inverse_or_zero(half_to_float(best.dmin));
  for (int g = 0; g < Type::kGroups; ++g) {
    best.scales[g] = round_clamped(fits[g].scale * inverse, 0, Type::kScaleMax);
    best.minima[g] = round_clamped(-fits[g].low * inverse_min, 0, Type::kScaleMax);
  }
  double least = settle(x, w, &best);
  for (int round = 0; round < 2; ++round) {
    AffineChoice<Type> choice = best;
    refit_affine(x, w, &choice);
    if (choice.d == best.d && choice.dmin == best.dmin) break;
    const double error = settle(x, w, &choice);
    if (error >= least) break;
    least = error;
    best = choice;
  }
  return best;
}

template <typename Type>
void affine_codes(const float* x, const AffineChoice<Type>& choice, uint8_t* codes) {
  for (int g = 0; g < Type::kGroups; ++g) {
    const Affine line = choice.line(g);
    const F4 inverse = splat(inverse_or_zero(line.scale));
    for (int i = g * Type::kGroupSize; i < (g + 1) * Type::kGroupSize; i += 4) {
      const F4 q = UniformBook<0, Type::kHigh>::nearest((load4(x + i) - splat(line.low)) * inverse);
      for (int l = 0; l < 4; ++l) codes[i + l] = static_cast<uint8_t>(q[l]);
    }
  }
}

// The eight scales and minima of Q4_K and Q5_K, six bits each, in twelve bytes.
void put_k4_scales(const int* scales, const int* minima, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<uint8_t>(scales[j] | (scales[j + 4] >> 4) << 6);
    out[j + 4] = static_cast<uint8_t>(minima[j] | (minima[j + 4] >> 4) << 6);
    out[j + 8] = static_cast<uint8_t>((scales[j + 4] & 15) | (minima[j + 4] & 15) << 4);
  }
}

// Groups are d * scale * code.
template <int kLow, int kHigh, int kFirst_, int kLast_>
struct SymmetricType {
  using Book = UniformBook<kLow, kHigh>;
  static constexpr int kGroupSize = 16;
  static constexpr int kFirst = kFirst_;
  static constexpr int kLast = kLast_;
  static float scale_value(int code) { return static_cast<float>(code); }
  static float scale_code(float v) { return v; }
  static float error(const float* x, const float* w, float scale) { return scale_error<Book, 16>(x, w, scale); }
  static Moments moments(const float* x, const float* w, float inverse) {
    return les::moments<Book, 16>(x, w, inverse);
  }

  // Codes from 0, that is less kLow.
  static void codes(const float* x, const ScaleChoice& choice, uint8_t* out) {
    for (int i = 0; i < 256; i += 4) {
      const float inverse = inverse_or_zero(half_to_float(choice.d) * static_cast<float>(choice.codes[i / 16]));
      const F4 q = Book::nearest(load4(x + i) * splat(inverse)) - splat(kLow);
      for (int l = 0; l < 4; ++l) out[i + l] = static_cast<uint8_t>(q[l]);
    }
  }
};

using Q2K = AffineType<3, 16, 15>;
using Q4K = AffineType<15, 32, 63>;
using Q5K = AffineType<31, 32, 63>;
using Q3K = SymmetricType<-4, 3, -32, 31>;
using Q6K = SymmetricType<-32, 31, -128, 127>;

}  // namespace

void encode_q2_k(const float* x, const float* w, uint8_t* out) {
  const auto choice = choose_affine<Q2K>(x, w, 2.4f, 4.5f, 12);
  uint8_t codes[256];
  affine_codes(x, choice, codes);
  for (int g = 0; g < 16; ++g) out[g] = static_cast<uint8_t>(choice.scales[g] | choice.minima[g] << 4);
  for (int i = 0; i < 64; ++i) {
    const uint8_t* c = codes + i / 32 * 128 + i % 32;
    out[16 + i] = static_cast<uint8_t>(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
  }
  store_le(out + 80, choice.d);
  store_le(out + 82, choice.dmin);
}

void encode_q4_k(const float* x, const float* w, uint8_t* out) {
  const auto choice = choose_affine<Q4K>(x, w, 13.5f, 17.5f, 9);
  uint8_t codes[256];
  affine_codes(x, choice, codes);
  store_le(out, choice.d);
  store_le(out + 2, choice.dmin);
  put_k4_scales(choice.scales, choice.minima, out + 4);
  for (int i = 0; i < 128; ++i) {
    const uint8_t* c = codes + i / 32 * 64 + i % 32;
    out[16 + i] = static_cast<uint8_t>(c[0] | c[32] << 4);
  }
}

void encode_q5_k(const float* x, const float* w, uint8_t* out) {
  const auto choice = choose_affine<Q5K>(x, w, 29.5f, 33.5f, 9);
  uint8_t codes[256];
  affine_codes(x, choice, codes);
  store_le(out, choice.d);
  store_le(out + 2, choice.dmin);
  put_k4_scales(choice.scales, choice.minima, out + 4);
  for (int i = 0; i < 32; ++i) {
    int high = 0;
    for (int g = 0; g < 8; ++g) high |= codes[32 * g + i] >> 4 << g;
    out[16 + i] = static_cast<uint8_t>(high);
  }
  for (int i = 0; i < 128; ++i) {
    const uint8_t* c = codes + i / 32 * 64 + i % 32;
    out[48 + i] = static_cast<uint8_t>((c[0] & 15) | (c[32] & 15) << 4);
  }
}

void encode_q3_k(const float* x, const float* w, uint8_t* out) {
  float fits[16];
  for (int g = 0; g < 16; ++g) fits[g] = fit_scale<Q3K::Book, 16>(x + 16 * g, w + 16 * g, 0.6f, 1.2f, 13);
  const ScaleChoice choice = choose_scales<Q3K>(x, w, fits, {-32.0f, 31.0f, -29.0f});
  uint8_t codes[256];
  Q3K::codes(x, choice, codes);
  for (int i = 0; i < 32; ++i) {
    int high = 0;
    for (int g = 0; g < 8; ++g) high |= codes[32 * g + i] >> 2 << g;
    out[i] = static_cast<uint8_t>(high);
  }
  for (int i = 0; i < 64; ++i) {
    const uint8_t* c = codes + i / 32 * 128 + i % 32;
    out[32 + i] = static_cast<uint8_t>((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
  }
  for (int i = 0; i < 8; ++i)
    out[96 + i] = static_cast<uint8_t>(((choice.codes[i] + 32) & 15) | ((choice.codes[i + 8] + 32) & 15) << 4);
  for (int i = 0; i < 4; ++i) {
    int high = 0;
    for (int part = 0; part < 4; ++part) high |= (choice.codes[4 * part + i] + 32) >> 4 << (2 * part);
    out[104 + i] = static_cast<uint8_t>(high);
  }
  store_le(out + 108, choice.d);
}

void encode_q6_k(const float* x, const float* w, uint8_t* out) {
  float fits[16];
  for (int g = 0; g < 16; ++g) fits[g] = fit_scale<Q6K::Book, 16>(x + 16 * g, w + 16 * g, 0.9f, 1.06f, 9);
  const ScaleChoice choice = choose_scales<Q6K>(x, w, fits, {-128.0f, 127.0f});
  uint8_t codes[256];
  Q6K::codes(x, choice, codes);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* c = codes + 128 * half;
    for (int i = 0; i < 32; ++i) {
      out[64 * half + i] = static_cast<uint8_t>((c[i] & 15) | (c[i + 64] & 15) << 4);
      out[64 * half + 32 + i] = static_cast<uint8_t>((c[i + 32] & 15) | (c[i + 96] & 15) << 4);
      out[128 + 32 * half + i] =
          static_cast<uint8_t>(c[i] >> 4 | c[i + 32] >> 4 << 2 | c[i + 64] >> 4 << 4 | c[i + 96] >> 4 << 6);
    }
  }
  for (int g = 0; g < 16; ++g) out[192 + g] = static_cast<uint8_t>(static_cast<int8_t>(choice.codes[g]));
  store_le(out + 208, choice.d);
}

}  // namespace les
