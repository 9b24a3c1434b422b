// Activations and gated products, written once for every instruction set.
#pragma once

#include "kernels/elementwise_inl.h"
#include "kernels/math_inl.h"

namespace les {
namespace {

template <Act kAct>
inline F activate(F x) {
  if constexpr (kAct == Act::kSilu) return f_mul(x, f_sigmoid(x));
  if constexpr (kAct == Act::kGelu) return f_mul(x, f_normal_cdf(x));
  if constexpr (kAct == Act::kGeluTanh) {
    // x (1 + tanh u) / 2 = x sigmoid(2 u): no cancellation for negative u.
    const F cube = f_mul(f_mul(x, x), x);
    const F u = f_mul(f_set(0.79788456f), f_fma(f_set(0.044715f), cube, x));
    return f_mul(x, f_sigmoid(f_add(u, u)));
  }
  if constexpr (kAct == Act::kRelu) return f_max(f_zero(), x);
  if constexpr (kAct == Act::kReluSquared) {
    const F positive = f_max(f_zero(), x);
    return f_mul(positive, positive);
  }
  if constexpr (kAct == Act::kSwigluOai) {
    const F clamped = f_min(f_set(7.0f), x);
    return f_mul(clamped, f_sigmoid(f_mul(f_set(1.702f), clamped)));
  }
}

template <Act kAct>
inline void glu_of(const float* gate, const float* up, int n, float* y) {
  for_lanes(n, [&](int i, int lanes) {
    F value = activate<kAct>(load_lanes(gate + i, lanes));
    if (up != nullptr) {
      F factor = load_lanes(up + i, lanes);
      if constexpr (kAct == Act::kSwigluOai) {
        factor = f_add(f_max(f_set(-7.0f), f_min(f_set(7.0f), factor)), f_set(1.0f));
      }
      value = f_mul(value, factor);
    }
    store_lanes(y + i, value, lanes);
  });
}

void glu(Act act, const float* gate, const float* up, int n, float* y) {
  switch (act) {
    case Act::kSilu: return glu_of<Act::kSilu>(gate, up, n, y);
    case Act::kGelu: return glu_of<Act::kGelu>(gate, up, n, y);
    case Act::kGeluTanh: return glu_of<Act::kGeluTanh>(gate, up, n, y);
    case Act::kRelu: return glu_of<Act::kRelu>(gate, up, n, y);
    case Act::kReluSquared: return glu_of<Act::kReluSquared>(gate, up, n, y);
    case Act::kSwigluOai: return glu_of<Act::kSwigluOai>(gate, up, n, y);
  }
}

}  // namespace
}  // namespace les
