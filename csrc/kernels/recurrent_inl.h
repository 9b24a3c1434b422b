// One token's step of recurrent states, written once for every instruction set.
#pragma once

#include "kernels/elementwise_inl.h"

namespace les {
namespace {

// kRows rows at once, to hide the latency of the sums: S = decay S + change k^T; out = S q.
template <int kRows>
inline void update_rows(float* s, const float* q, const float* k, const F* change, F decay, int n_k, float* out) {
  F sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = f_zero();
  for_lanes(n_k, [&](int i, int lanes) {
    const F key = load_lanes(k + i, lanes);
    const F query = load_lanes(q + i, lanes);
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) {
      float* at = s + static_cast<ptrdiff_t>(r) * n_k + i;
      const F state = f_fma(change[r], key, f_mul(load_lanes(at, lanes), decay));
      store_lanes(at, state, lanes);
      sum[r] = f_fma(state, query, sum[r]);
    }
  });
  for (int r = 0; r < kRows; ++r) out[r] = f_sum(sum[r]);
}

struct DeltaRule {
  template <int kRows>
  static void rows(float* s, const float* q, const float* k, const float* v, float decay, float beta, int n_k,
                   float* out) {
    const F factor = f_set(decay);
    F known[kRows];
    for (int r = 0; r < kRows; ++r) known[r] = f_zero();
    for_lanes(n_k, [&](int i, int lanes) {
      const F key = load_lanes(k + i, lanes);
#pragma GCC unroll kUnroll
      for (int r = 0; r < kRows; ++r) {
        const F state = load_lanes(s + static_cast<ptrdiff_t>(r) * n_k + i, lanes);
        known[r] = f_fma(f_mul(state, factor), key, known[r]);
      }
    });
    F change[kRows];
    for (int r = 0; r < kRows; ++r) change[r] = f_set(beta * (v[r] - f_sum(known[r])));
    update_rows<kRows>(s, q, k, change, factor, n_k, out);
  }
};

struct DecayRule {
  template <int kRows>
  static void rows(float* s, const float* q, const float* k, const float* v, float decay, float factor, int n_k,
                   float* out) {
    F change[kRows];
    for (int r = 0; r < kRows; ++r) change[r] = f_set(factor * v[r]);
    update_rows<kRows>(s, q, k, change, f_set(decay), n_k, out);
  }
};

template <typename Rule>
void recur(float* s, const float* q, const float* k, const float* v, float decay, float factor, int n_k, int n_v,
           float* out) {
  int r = 0;
  for (; r + 4 <= n_v; r += 4) {
    Rule::template rows<4>(s + static_cast<ptrdiff_t>(r) * n_k, q, k, v + r, decay, factor, n_k, out + r);
  }
  for (; r < n_v; ++r) {
    Rule::template rows<1>(s + static_cast<ptrdiff_t>(r) * n_k, q, k, v + r, decay, factor, n_k, out + r);
  }
}

}  // namespace
}  // namespace les
