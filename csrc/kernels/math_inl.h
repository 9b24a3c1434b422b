// exp, tanh, erfc and what is made of them, on vectors of float. Coefficients are near-minimax fits in double, rounded.
// Relative errors, measured by kernels_math_test: exp, expm1 and sigmoid < 2e-7, tanh < 3e-7.
#pragma once

namespace les {
namespace {

constexpr float kLog2E = 1.44269504f;
constexpr float kLn2High = 0.693359375f;  // few bits, so that n * kLn2High is exact
constexpr float kLn2Low = -2.12194440e-4f;

// n and e^r - 1 with x = n ln 2 + r, |r| <= ln 2 / 2.
struct ExpParts {
  F n;
  F fraction;
};

inline ExpParts exp_parts(F x) {
  const F n = f_round(f_mul(x, f_set(kLog2E)));
  const F r = f_fnma(n, f_set(kLn2Low), f_fnma(n, f_set(kLn2High), x));
  F q = f_fma(f_set(1.3950486e-3f), r, f_set(8.3688879e-3f));
  q = f_fma(q, r, f_set(4.1666206e-2f));
  q = f_fma(q, r, f_set(1.6666518e-1f));
  q = f_fma(q, r, f_set(0.5f));
  return {n, f_fma(f_mul(r, r), q, r)};
}

// Zero far below, infinite far above, NaN for NaN.
inline F f_exp(F x) {
  const ExpParts e = exp_parts(f_min(f_set(90.0f), f_max(f_set(-105.0f), x)));
  return f_scale2(f_add(e.fraction, f_set(1.0f)), e.n);
}

// e^x - 1 for 0 <= x <= 40, accurate near zero.
inline F f_expm1_positive(F x) {
  const ExpParts e = exp_parts(x);
  const F power = f_scale2(f_set(1.0f), e.n);
  return f_fma(e.fraction, power, f_sub(power, f_set(1.0f)));
}

inline F f_sigmoid(F x) { return f_div(f_set(1.0f), f_add(f_set(1.0f), f_exp(f_sub(f_zero(), x)))); }

inline F f_tanh(F x) {
  const F a = f_min(f_set(10.0f), f_abs(x));
  const F e = f_expm1_positive(f_add(a, a));
  return f_copysign(f_div(e, f_add(e, f_set(2.0f))), x);
}

// The normal distribution function: erfc(-x / sqrt 2) / 2, without cancellation on the negative side.
inline F f_normal_cdf(F x) {
  const F z = f_mul(f_abs(x), f_set(0.70710678f));
  const F t = f_mul(z, z);
  F s = f_fma(f_set(7.8540252e-5f), t, f_set(-8.0102473e-4f));
  s = f_fma(s, t, f_set(5.1883343e-3f));
  s = f_fma(s, t, f_set(-2.6853817e-2f));
  s = f_fma(s, t, f_set(1.1283585e-1f));
  s = f_fma(s, t, f_set(-3.7612626e-1f));
  s = f_fma(s, t, f_set(1.1283791f));
  const F near = f_sub(f_set(1.0f), f_mul(z, s));
  const F a = f_min(f_set(5.5f), z);
  F q = f_fma(f_set(1.0483313e-7f), a, f_set(-3.9629049e-6f));
  q = f_fma(q, a, f_set(6.8435226e-5f));
  q = f_fma(q, a, f_set(-7.1916787e-4f));
  q = f_fma(q, a, f_set(5.1779663e-3f));
  q = f_fma(q, a, f_set(-2.7347337e-2f));
  q = f_fma(q, a, f_set(1.1140603e-1f));
  q = f_fma(q, a, f_set(6.3064355e-1f));
  q = f_fma(q, a, f_set(1.1308292f));
  q = f_fma(q, a, f_set(-4.4935365e-4f));
  const F far = f_select_lt(f_set(5.5f), z, f_zero(), f_exp(f_sub(f_zero(), q)));
  const F tail = f_mul(f_set(0.5f), f_select_lt(z, f_set(1.0f), near, far));
  return f_select_lt(x, f_zero(), tail, f_sub(f_set(1.0f), tail));
}

}  // namespace
}  // namespace les
