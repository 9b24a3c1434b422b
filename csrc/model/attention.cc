#include "model/attention.h"

#include <algorithm>
#include <cmath>

#include "model/graph.h"

namespace les {

Status bind_attention(WeightBinder& binder, int layer, int d_model, const AttentionSpec& spec, AttentionWeights* w) {
  const auto name = [layer](const char* suffix) { return block_name(layer, suffix); };
  const int n_q = spec.n_heads * spec.dim_k * (spec.is_gated ? 2 : 1);
  const int n_k = spec.n_kv_heads * spec.dim_k;
  const int n_v = spec.n_kv_heads * spec.dim_v;
  if (binder.has(name("attn_qkv.weight"))) {
    LES_RETURN_IF_ERROR(binder.matrix(name("attn_qkv.weight"), d_model, n_q + n_k + n_v, &w->qkv));
    LES_RETURN_IF_ERROR(binder.optional_vector(name("attn_qkv.bias"), n_q + n_k + n_v, &w->qkv_bias));
  } else {
    LES_RETURN_IF_ERROR(binder.matrix(name("attn_q.weight"), d_model, n_q, &w->q));
    LES_RETURN_IF_ERROR(binder.matrix(name("attn_k.weight"), d_model, n_k, &w->k));
    if (!spec.v_is_k) LES_RETURN_IF_ERROR(binder.matrix(name("attn_v.weight"), d_model, n_v, &w->v));
    LES_RETURN_IF_ERROR(binder.optional_vector(name("attn_q.bias"), n_q, &w->q_bias));
    LES_RETURN_IF_ERROR(binder.optional_vector(name("attn_k.bias"), n_k, &w->k_bias));
    LES_RETURN_IF_ERROR(binder.optional_vector(name("attn_v.bias"), n_v, &w->v_bias));
  }
  LES_RETURN_IF_ERROR(binder.matrix(name("attn_output.weight"), spec.n_heads * spec.dim_v, d_model, &w->out));
  LES_RETURN_IF_ERROR(binder.optional_vector(name("attn_output.bias"), d_model, &w->out_bias));
  if (spec.qk_norm != QkNorm::kNone) {
    const bool is_full = spec.qk_norm == QkNorm::kFull;
    LES_RETURN_IF_ERROR(binder.vector(name("attn_q_norm.weight"), is_full ? n_q : spec.dim_k, &w->q_norm));
    LES_RETURN_IF_ERROR(binder.vector(name("attn_k_norm.weight"), is_full ? n_k : spec.dim_k, &w->k_norm));
  }
  return binder.optional_vector(name("attn_sinks.weight"), spec.n_heads, &w->sinks);
}

void rope_heads(Step& step, const Rope& rope, int n_heads, int dim, int offset, float* x) {
  Exec& exec = *step.exec;
  ScratchScope scope(*exec.scratch);
  const auto n_pairs = static_cast<size_t>(rope.n_rot / 2);
  auto* angles = exec.scratch->alloc<float>(2 * n_pairs * static_cast<size_t>(step.n));
  exec.pool->parallel_for(step.n, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* cosine = angles + 2 * n_pairs * static_cast<size_t>(t);
      rope_angles(rope, step.position + static_cast<int>(t), cosine, cosine + n_pairs);
      for (int h = 0; h < n_heads; ++h) {
        apply_rope(rope, cosine, cosine + n_pairs, x + (t * n_heads + h) * dim + offset);
      }
    }
  });
}

namespace {

void norm_queries_or_keys(Exec& exec, const AttentionSpec& spec, const Vector& w, int n, int n_heads, float* x) {
  if (spec.qk_norm == QkNorm::kPerHead) rms_norm(exec, x, w, n * n_heads, spec.dim_k, spec.eps, x);
  if (spec.qk_norm == QkNorm::kFull) rms_norm(exec, x, w, n, n_heads * spec.dim_k, spec.eps, x);
}

void norm_and_turn(Step& step, const AttentionSpec& spec, const Vector& w, int n_heads, float* x) {
  if (!spec.norm_after_rope) norm_queries_or_keys(*step.exec, spec, w, step.n, n_heads, x);
  if (spec.rope != nullptr) rope_heads(step, *spec.rope, n_heads, spec.dim_k, 0, x);
  if (spec.norm_after_rope) norm_queries_or_keys(*step.exec, spec, w, step.n, n_heads, x);
}

// Rows of [part | rest] into a matrix of the parts alone.
void copy_columns(const float* x, int n_rows, int row, int first, int count, float* y) {
  for (int r = 0; r < n_rows; ++r) {
    std::copy_n(x + static_cast<size_t>(r) * row + first, count, y + static_cast<size_t>(r) * count);
  }
}

struct Projections {
  float* q;     // [n, n_heads, dim_k]
  float* gate;  // [n, n_heads, dim_k], or null
  float* k;     // [n, n_kv_heads, dim_k]
  float* v;     // [n, n_kv_heads, dim_v]
};

Projections project(Step& step, const AttentionSpec& spec, const AttentionWeights& w, const float* x) {
  Exec& exec = *step.exec;
  const int n = step.n;
  const int n_q = spec.n_heads * spec.dim_k, n_k = spec.n_kv_heads * spec.dim_k, n_v = spec.n_kv_heads * spec.dim_v;
  const auto rows = static_cast<size_t>(n);
  Projections p{};
  p.q = exec.scratch->alloc<float>(rows * static_cast<size_t>(n_q));
  p.k = exec.scratch->alloc<float>(rows * static_cast<size_t>(n_k));
  p.v = exec.scratch->alloc<float>(rows * static_cast<size_t>(n_v));
  p.gate = spec.is_gated ? exec.scratch->alloc<float>(rows * static_cast<size_t>(n_q)) : nullptr;
  ScratchScope scope(*exec.scratch);
  const Activations act = quantize(exec, x, n, w.qkv ? w.qkv.n_in : w.q.n_in);
  if (w.qkv) {
    const int row = w.qkv.n_out;
    auto* all = exec.scratch->alloc<float>(rows * static_cast<size_t>(row));
    matmul(exec, w.qkv, w.qkv_bias, act, all);
    copy_columns(all, n, row, 0, n_q, p.q);
    copy_columns(all, n, row, n_q, n_k, p.k);
    copy_columns(all, n, row, n_q + n_k, n_v, p.v);
    return p;
  }
  if (spec.is_gated) {
    auto* both = exec.scratch->alloc<float>(rows * static_cast<size_t>(2 * n_q));
    matmul(exec, w.q, w.q_bias, act, both);
    copy_columns(both, n * spec.n_heads, 2 * spec.dim_k, 0, spec.dim_k, p.q);
    copy_columns(both, n * spec.n_heads, 2 * spec.dim_k, spec.dim_k, spec.dim_k, p.gate);
  } else {
    matmul(exec, w.q, w.q_bias, act, p.q);
  }
  matmul(exec, w.k, w.k_bias, act, p.k);
  if (spec.v_is_k) {
    std::copy_n(p.k, rows * static_cast<size_t>(n_k), p.v);
  } else {
    matmul(exec, w.v, w.v_bias, act, p.v);
  }
  return p;
}

}  // namespace

void store_keys_and_values(Step& step, int layer, const AttentionSpec& spec, const float* k, const float* v) {
  const KvLayer& kv = step.state->kv(layer);
  const KvType type = step.state->kv_type();
  step.exec->pool->parallel_for(
      static_cast<int64_t>(step.n) * spec.n_kv_heads, 16, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const auto position = static_cast<size_t>(step.position + i / spec.n_kv_heads);
          const auto head = static_cast<size_t>(i % spec.n_kv_heads);
          step.exec->kernels->store_kv(k + i * spec.dim_k, spec.dim_k, type,
                                       kv.k + head * kv.k_head_bytes + position * kv.k_row_bytes);
          step.exec->kernels->store_kv(v + i * spec.dim_v, spec.dim_v, type,
                                       kv.v + head * kv.v_head_bytes + position * kv.v_row_bytes);
        }
      });
}

void cached_attention(Step& step, int layer, const AttentionSpec& spec, const float* sinks, const float* q,
                      const float* k, const float* v, float* out) {
  Exec& exec = *step.exec;
  store_keys_and_values(step, layer, spec, k, v);
  const KvLayer& kv = step.state->kv(layer);
  const KvType type = step.state->kv_type();
  const int group = spec.n_heads / spec.n_kv_heads;
  const int last = step.position + step.n;
  const size_t scores_row = static_cast<size_t>(group) * static_cast<size_t>(last);
  ScratchScope scope(*exec.scratch);
  auto* scores = exec.scratch->alloc<float>(scores_row * static_cast<size_t>(exec.pool->n_threads()));
  exec.pool->parallel_for(
      static_cast<int64_t>(step.n) * spec.n_kv_heads, 1, [&](int64_t begin, int64_t end, int thread) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t token = i / spec.n_kv_heads;
          const auto head = static_cast<size_t>(i % spec.n_kv_heads);
          const int64_t first_head = token * spec.n_heads + static_cast<int64_t>(head) * group;
          AttentionArgs args{};
          args.q = q + first_head * spec.dim_k;
          args.q_stride = static_cast<size_t>(spec.dim_k);
          args.n_heads = group;
          args.dim_k = spec.dim_k;
          args.dim_v = spec.dim_v;
          args.k = kv.k + head * kv.k_head_bytes;
          args.v = kv.v + head * kv.v_head_bytes;
          args.k_stride_bytes = kv.k_row_bytes;
          args.v_stride_bytes = kv.v_row_bytes;
          args.k_type = args.v_type = type;
          const int own_end = step.position + static_cast<int>(token) + 1;
          args.end = spec.is_causal ? own_end : last;
          args.begin = spec.window > 0 ? std::max(0, own_end - spec.window) : 0;
          args.scale = spec.scale > 0 ? spec.scale : 1.0f / std::sqrt(static_cast<float>(spec.dim_k));
          args.softcap = spec.softcap;
          args.sinks = sinks == nullptr ? nullptr : sinks + head * static_cast<size_t>(group);
          args.scores = scores + scores_row * static_cast<size_t>(thread);
          args.out = out + first_head * spec.dim_v;
          args.out_stride = static_cast<size_t>(spec.dim_v);
          exec.kernels->attention(args);
        }
      });
}

void attention(Step& step, int layer, const AttentionSpec& spec, const AttentionWeights& w, const float* x, float* y) {
  Exec& exec = *step.exec;
  ScratchScope scope(*exec.scratch);
  const Projections p = project(step, spec, w, x);
  if (spec.norm_v) rms_norm(exec, p.v, Vector{}, step.n * spec.n_kv_heads, spec.dim_v, spec.eps, p.v);
  norm_and_turn(step, spec, w.q_norm, spec.n_heads, p.q);
  norm_and_turn(step, spec, w.k_norm, spec.n_kv_heads, p.k);
  const int64_t n_out = static_cast<int64_t>(step.n) * spec.n_heads * spec.dim_v;
  auto* out = exec.scratch->alloc<float>(static_cast<size_t>(n_out));
  cached_attention(step, layer, spec, w.sinks.data, p.q, p.k, p.v, out);
  if (spec.is_gated) {
    for (int64_t i = 0; i < n_out; ++i) out[i] *= sigmoid(p.gate[i]);
  }
  matmul(exec, w.out, w.out_bias, quantize(exec, out, step.n, spec.n_heads * spec.dim_v), y);
}

}  // namespace les
