// One token's step of recurrent states, written once for every instruction set.
#pragma once

#include "kernels/elementwise_inl.h"

namespace les {
namespace {

// kRows rows of the state at once, to hide the latency of the sums.
template <int kRows>
inline void delta_rows(float* s, const float* q, const float* k, const float* v, float decay, float beta, int n_k,
                       float* out) {
  const F factor = f_set(decay);
  F sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = f_zero();
  for_lanes(n_k, [&](int i, int lanes) {
    const F key = load_lanes(k + i, lanes);
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) {
      float* at = s + static_cast<ptrdiff_t>(r) * n_k + i;
      const F state = f_mul(load_lanes(at, lanes), factor);
      store_lanes(at, state, lanes);
      sum[r] = f_fma(state, key, sum[r]);
    }
  });
  F change[kRows];
  for (int r = 0; r < kRows; ++r) {
    change[r] = f_set(beta * (v[r] - f_sum(sum[r])));
    sum[r] = f_zero();
  }
  for_lanes(n_k, [&](int i, int lanes) {
    const F key = load_lanes(k + i, lanes);
    const F query = load_lanes(q + i, lanes);
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) {
      float* at = s + static_cast<ptrdiff_t>(r) * n_k + i;
      const F state = f_fma(change[r], key, load_lanes(at, lanes));
      store_lanes(at, state, lanes);
      sum[r] = f_fma(state, query, sum[r]);
    }
  });
  for (int r = 0; r < kRows; ++r) out[r] = f_sum(sum[r]);
}

void delta_rule(float* s, const float* q, const float* k, const float* v, float decay, float beta, int n_k, int n_v,
                float* out) {
  int r = 0;
  for (; r + 4 <= n_v; r += 4)
    delta_rows<4>(s + static_cast<ptrdiff_t>(r) * n_k, q, k, v + r, decay, beta, n_k, out + r);
  for (; r < n_v; ++r) delta_rows<1>(s + static_cast<ptrdiff_t>(r) * n_k, q, k, v + r, decay, beta, n_k, out + r);
}

template <int kRows>
inline void decay_rows(float* s, const float* q, const float* k, const float* v, float decay, float factor, int n_k,
                       float* out) {
  const F kept = f_set(decay);
  F change[kRows], sum[kRows];
  for (int r = 0; r < kRows; ++r) {
    change[r] = f_set(factor * v[r]);
    sum[r] = f_zero();
  }
  for_lanes(n_k, [&](int i, int lanes) {
    const F key = load_lanes(k + i, lanes);
    const F query = load_lanes(q + i, lanes);
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) {
      float* at = s + static_cast<ptrdiff_t>(r) * n_k + i;
      const F state = f_fma(change[r], key, f_mul(load_lanes(at, lanes), kept));
      store_lanes(at, state, lanes);
      sum[r] = f_fma(state, query, sum[r]);
    }
  });
  for (int r = 0; r < kRows; ++r) out[r] = f_sum(sum[r]);
}

void decay_rule(float* s, const float* q, const float* k, const float* v, float decay, float factor, int n_k, int n_v,
                float* out) {
  int r = 0;
  for (; r + 4 <= n_v; r += 4)
    decay_rows<4>(s + static_cast<ptrdiff_t>(r) * n_k, q, k, v + r, decay, factor, n_k, out + r);
  for (; r < n_v; ++r) decay_rows<1>(s + static_cast<ptrdiff_t>(r) * n_k, q, k, v + r, decay, factor, n_k, out + r);
}

}  // namespace
}  // namespace les
