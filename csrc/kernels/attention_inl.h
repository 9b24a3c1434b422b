// Attention of the query heads that share one key/value head, for one token. Results of a head do not depend on the
// heads computed beside it.
#pragma once

#include "kernels/elementwise_inl.h"

namespace les {
namespace {

constexpr int kHeadTile = 4;
constexpr int kValueTile = kLanes == 16 ? 4 : 2;  // vectors of the value dimension

inline size_t position(int p) { return static_cast<size_t>(p); }

// scores[h * n + i] = scale * (q of head h . k of position begin + i) for kHeads heads.
template <KvType kType, int kHeads>
inline void score_heads(const AttentionArgs& args, int first_head, int n) {
  const float* q = args.q + static_cast<size_t>(first_head) * args.q_stride;
  float* scores = args.scores + static_cast<size_t>(first_head) * position(n);
  const int whole = args.dim_k / kLanes * kLanes;
  for (int p = 0; p < n; ++p) {
    const uint8_t* key = args.k + position(args.begin + p) * args.k_stride_bytes;
    F sum[kHeads];
    for (int h = 0; h < kHeads; ++h) sum[h] = f_zero();
    for (int i = 0; i < whole; i += kLanes) {
      const F lanes = kv_lanes<kType>(key, i);
#pragma GCC unroll kUnroll
      for (int h = 0; h < kHeads; ++h)
        sum[h] = f_fma(lanes, f_load(q + static_cast<size_t>(h) * args.q_stride + i), sum[h]);
    }
    if (whole < args.dim_k) {
      const int rest = args.dim_k - whole;
      const F lanes = kv_lanes_n<kType>(key, whole, rest);
      for (int h = 0; h < kHeads; ++h) {
        sum[h] = f_fma(lanes, f_load_n(q + static_cast<size_t>(h) * args.q_stride + whole, rest), sum[h]);
      }
    }
    for (int h = 0; h < kHeads; ++h)
      scores[static_cast<size_t>(h) * position(n) + position(p)] = f_sum(sum[h]) * args.scale;
  }
}

template <KvType kType>
void score_all(const AttentionArgs& args, int n) {
  int h = 0;
  for (; h + kHeadTile <= args.n_heads; h += kHeadTile) score_heads<kType, kHeadTile>(args, h, n);
  for (; h < args.n_heads; ++h) score_heads<kType, 1>(args, h, n);
}

// out = (sum of weights * v) * factor for kHeads heads and kVectors vectors from dimension i on.
template <KvType kType, int kHeads, int kVectors>
inline void value_tile(const AttentionArgs& args, int first_head, int n, int i, int lanes, const float* factor) {
  F sum[kHeads * kVectors];
  for (int t = 0; t < kHeads * kVectors; ++t) sum[t] = f_zero();
  const float* weights = args.scores + static_cast<size_t>(first_head) * position(n);
  for (int p = 0; p < n; ++p) {
    const uint8_t* row = args.v + position(args.begin + p) * args.v_stride_bytes;
    F value[kVectors];
#pragma GCC unroll kUnroll
    for (int j = 0; j < kVectors; ++j) {
      value[j] = lanes == kLanes ? kv_lanes<kType>(row, i + j * kLanes) : kv_lanes_n<kType>(row, i, lanes);
    }
#pragma GCC unroll kUnroll
    for (int h = 0; h < kHeads; ++h) {
      const F weight = f_set(weights[static_cast<size_t>(h) * position(n) + position(p)]);
#pragma GCC unroll kUnroll
      for (int j = 0; j < kVectors; ++j) sum[h * kVectors + j] = f_fma(weight, value[j], sum[h * kVectors + j]);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    float* out = args.out + static_cast<size_t>(first_head + h) * args.out_stride + i;
    for (int j = 0; j < kVectors; ++j) {
      store_lanes(out + j * kLanes, f_mul(sum[h * kVectors + j], f_set(factor[h])), lanes);
    }
  }
}

template <KvType kType, int kHeads>
inline void value_heads(const AttentionArgs& args, int first_head, int n, const float* factor) {
  int i = 0;
  for (; i + kValueTile * kLanes <= args.dim_v; i += kValueTile * kLanes) {
    value_tile<kType, kHeads, kValueTile>(args, first_head, n, i, kLanes, factor);
  }
  for (; i + kLanes <= args.dim_v; i += kLanes) value_tile<kType, kHeads, 1>(args, first_head, n, i, kLanes, factor);
  if (i < args.dim_v) value_tile<kType, kHeads, 1>(args, first_head, n, i, args.dim_v - i, factor);
}

// Turns the scores of one head into weights; returns 1 / their sum, which includes the sink's.
inline float weigh_head(const AttentionArgs& args, int head, int n) {
  float* scores = args.scores + static_cast<size_t>(head) * position(n);
  if (args.softcap != 0.0f) {
    const F cap = f_set(args.softcap);
    for_lanes(n, [&](int i, int lanes) {
      store_lanes(scores + i, f_mul(cap, f_tanh(f_div(load_lanes(scores + i, lanes), cap))), lanes);
    });
  }
  float largest = max_of(scores, n);
  if (args.sinks == nullptr) return 1.0f / exp_and_sum(scores, n, largest);
  float sink = args.sinks[head];
  largest = sink > largest ? sink : largest;
  return 1.0f / (exp_and_sum(scores, n, largest) + exp_and_sum(&sink, 1, largest));
}

template <KvType kType>
void weigh_values(const AttentionArgs& args, int n) {
  int h = 0;
  for (; h + kHeadTile <= args.n_heads; h += kHeadTile) {
    float factor[kHeadTile];
    for (int j = 0; j < kHeadTile; ++j) factor[j] = weigh_head(args, h + j, n);
    value_heads<kType, kHeadTile>(args, h, n, factor);
  }
  for (; h < args.n_heads; ++h) {
    const float factor = weigh_head(args, h, n);
    value_heads<kType, 1>(args, h, n, &factor);
  }
}

void attention(const AttentionArgs& args) {
  const int n = args.end - args.begin;
  if (n <= 0) {
    for (int h = 0; h < args.n_heads; ++h) {
      for (int i = 0; i < args.dim_v; ++i)
        args.out[static_cast<size_t>(h) * args.out_stride + static_cast<size_t>(i)] = 0.0f;
    }
    return;
  }
  if (args.k_type == KvType::kF32) score_all<KvType::kF32>(args, n);
  if (args.k_type == KvType::kF16) score_all<KvType::kF16>(args, n);
  if (args.k_type == KvType::kQ8_0) score_all<KvType::kQ8_0>(args, n);
  if (args.v_type == KvType::kF32) weigh_values<KvType::kF32>(args, n);
  if (args.v_type == KvType::kF16) weigh_values<KvType::kF16>(args, n);
  if (args.v_type == KvType::kQ8_0) weigh_values<KvType::kQ8_0>(args, n);
}

}  // namespace
}  // namespace les
