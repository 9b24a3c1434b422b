#include "model/mla.h"

#include <algorithm>
#include <vector>

#include "model/attention.h"
#include "model/graph.h"
#include "quant/codec.h"

namespace les {

namespace {

constexpr int kHeadGroup = 4;  // heads that one task attends for

uint64_t transposed_bytes(const MlaSpec& spec) {
  return static_cast<uint64_t>(spec.n_heads) * static_cast<uint64_t>(spec.kv_rank) *
         static_cast<uint64_t>(spec.dim_nope) * sizeof(float);
}

}  // namespace

Status bind_mla(WeightBinder& binder, int layer, int d_model, const MlaSpec& spec, MlaWeights* w) {
  const auto name = [layer](const char* suffix) { return block_name(layer, suffix); };
  const int n_q = spec.n_heads * spec.dim_q();
  if (spec.q_rank > 0) {
    LES_RETURN_IF_ERROR(binder.matrix(name("attn_q_a.weight"), d_model, spec.q_rank, &w->q_a));
    LES_RETURN_IF_ERROR(binder.vector(name("attn_q_a_norm.weight"), spec.q_rank, &w->q_a_norm));
    LES_RETURN_IF_ERROR(binder.matrix(name("attn_q_b.weight"), spec.q_rank, n_q, &w->q));
  } else {
    LES_RETURN_IF_ERROR(binder.matrix(name("attn_q.weight"), d_model, n_q, &w->q));
  }
  LES_RETURN_IF_ERROR(binder.matrix(name("attn_kv_a_mqa.weight"), d_model, spec.cache_row(), &w->kv_a));
  LES_RETURN_IF_ERROR(binder.vector(name("attn_kv_a_norm.weight"), spec.kv_rank, &w->kv_a_norm));
  if (!binder.has(name("attn_k_b.weight")) && binder.has(name("attn_kv_b.weight"))) {
    const int n_kv = spec.n_heads * (spec.dim_nope + spec.dim_v);
    LES_RETURN_IF_ERROR(binder.matrix(name("attn_kv_b.weight"), spec.kv_rank, n_kv, &w->kv_b));
    binder.reserve(transposed_bytes(spec));
  } else {
    LES_RETURN_IF_ERROR(
        binder.matrices(name("attn_k_b.weight"), spec.dim_nope, spec.kv_rank, spec.n_heads, &w->k_b_all));
    LES_RETURN_IF_ERROR(binder.matrices(name("attn_v_b.weight"), spec.kv_rank, spec.dim_v, spec.n_heads, &w->v_b_all));
  }
  return binder.matrix(name("attn_output.weight"), spec.n_heads * spec.dim_v, d_model, &w->out);
}

Status prepare_mla(const MlaSpec& spec, MlaWeights* w) {
  const auto divide = [](const Matrix& all, int n_out) {
    return HeadMatrices{all.type, all.data, all.n_in, n_out, all.row_bytes, all.row_bytes * static_cast<size_t>(n_out)};
  };
  if (!w->kv_b) {
    w->k_b = divide(w->k_b_all, spec.kv_rank);
    w->v_b = divide(w->v_b_all, spec.dim_v);
    return Status::ok();
  }
  const Matrix& both = w->kv_b;
  const size_t head_bytes = both.row_bytes * static_cast<size_t>(spec.dim_nope + spec.dim_v);
  const size_t key_bytes = both.row_bytes * static_cast<size_t>(spec.dim_nope);
  w->v_b = HeadMatrices{both.type, both.data + key_bytes, spec.kv_rank, spec.dim_v, both.row_bytes, head_bytes};
  // The keys' part maps latent to key; absorbing it needs its transpose.
  LES_ASSIGN_OR_RETURN(w->transposed, make_buffer(transposed_bytes(spec)));
  const auto rank = static_cast<size_t>(spec.kv_rank), nope = static_cast<size_t>(spec.dim_nope);
  std::vector<float> row(rank);
  for (size_t h = 0; h < static_cast<size_t>(spec.n_heads); ++h) {
    float* to = w->transposed.as<float>() + h * rank * nope;
    for (size_t j = 0; j < nope; ++j) {
      dequantizer(both.type)(both.data + h * head_bytes + j * both.row_bytes, spec.kv_rank, row.data());
      for (size_t l = 0; l < rank; ++l) to[l * nope + j] = row[l];
    }
  }
  const size_t row_bytes = nope * sizeof(float);
  w->k_b = HeadMatrices{QType::kF32, w->transposed.data(), spec.dim_nope, spec.kv_rank, row_bytes, rank * row_bytes};
  return Status::ok();
}

LayerStateSpec mla_state(const MlaSpec& spec) { return {1, spec.cache_row(), 0, 0, 0}; }

size_t mla_scratch_floats(const MlaSpec& spec) {
  const auto heads = static_cast<size_t>(spec.n_heads);
  const auto rank = static_cast<size_t>(spec.kv_rank), rot = static_cast<size_t>(spec.n_rot);
  const auto nope = static_cast<size_t>(spec.dim_nope), dim_v = static_cast<size_t>(spec.dim_v);
  // Queries, absorbed queries, cache row; latent outputs by head with their 8-bit copy, outputs with theirs.
  return heads * (3 * nope + 3 * rot + 3 * rank + 2 * dim_v) + 2 * static_cast<size_t>(spec.q_rank) + 2 * (rank + rot);
}

namespace {

// y[t, h, :n_out] (heads ldy_head apart) = w_h x_h[t] for x [n_heads, n, n_in].
void matmul_heads(Exec& exec, const HeadMatrices& w, int n_heads, int n, const float* x, int ldy_head, float* y) {
  ScratchScope scope(*exec.scratch);
  const Activations all = quantize(exec, x, n_heads * n, w.n_in);
  const auto type = static_cast<size_t>(w.type);
  const MatmulFn fn = exec.use_float ? exec.kernels->matmul_f32[type] : exec.kernels->matmul[type];
  const auto ldy = static_cast<size_t>(n_heads) * static_cast<size_t>(ldy_head);
  exec.pool->parallel_for(n_heads, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t h = begin; h < end; ++h) {
      const int64_t at = h * n * w.n_in;
      Activations one = all;
      one.n_cols = n;
      one.f32 = x + at;
      if (all.q8 != nullptr) {
        one.q8 = all.q8 + at;
        one.scale = all.scale + at / kActBlock;
        one.sum = all.sum + at / kActBlock;
      }
      fn(w.data + static_cast<size_t>(h) * w.head_bytes, w.row_bytes, w.n_out, one, y + h * ldy_head, ldy);
    }
  });
}

// Queries of every token and head in the cache's terms: q [n, n_heads, cache_row].
void absorbed_queries(Step& step, const MlaSpec& spec, const MlaWeights& w, const Activations& x, float* q) {
  Exec& exec = *step.exec;
  ScratchScope scope(*exec.scratch);
  const int n = step.n, heads = spec.n_heads, dim = spec.dim_q(), nope = spec.dim_nope;
  const auto rows = static_cast<size_t>(n) * static_cast<size_t>(heads);
  auto* plain = exec.scratch->alloc<float>(rows * static_cast<size_t>(dim));       // [n, heads, nope | rot]
  if (spec.q_rank > 0) {
    auto* low = exec.scratch->alloc<float>(static_cast<size_t>(n) * static_cast<size_t>(spec.q_rank));
    matmul(exec, w.q_a, x, low);
    rms_norm(exec, low, w.q_a_norm, n, spec.q_rank, spec.eps, low);
    matmul(exec, w.q, quantize(exec, low, n, spec.q_rank), plain);
  } else {
    matmul(exec, w.q, x, plain);
  }
  rope_heads(step, *spec.rope, heads, dim, nope, plain);
  auto* by_head = exec.scratch->alloc<float>(rows * static_cast<size_t>(nope));    // [heads, n, nope]
  for (int t = 0; t < n; ++t) {
    for (int h = 0; h < heads; ++h) {
      const int64_t row = static_cast<int64_t>(t) * heads + h;
      std::copy_n(plain + row * dim, nope, by_head + (static_cast<int64_t>(h) * n + t) * nope);
      std::copy_n(plain + row * dim + nope, spec.n_rot, q + row * spec.cache_row() + spec.kv_rank);
    }
  }
  matmul_heads(exec, w.k_b, heads, n, by_head, spec.cache_row(), q);
}

// Appends [norm(latent) | turned key part] of every token to the cache.
void store_rows(Step& step, int layer, const MlaSpec& spec, const MlaWeights& w, const Activations& x) {
  Exec& exec = *step.exec;
  ScratchScope scope(*exec.scratch);
  const int row = spec.cache_row();
  auto* rows = exec.scratch->alloc<float>(static_cast<size_t>(step.n) * static_cast<size_t>(row));
  matmul(exec, w.kv_a, x, rows);
  rope_heads(step, *spec.rope, 1, row, spec.kv_rank, rows);
  const KvLayer& kv = step.state->kv(layer);
  for (int t = 0; t < step.n; ++t) {
    float* one = rows + static_cast<int64_t>(t) * row;
    exec.kernels->rms_norm(one, w.kv_a_norm.data, spec.kv_rank, spec.eps, one);
    exec.kernels->store_kv(one, row, step.state->kv_type(),
                           kv.k + static_cast<size_t>(step.position + t) * kv.k_row_bytes);
  }
}

// Attention in the latent space, q [n, n_heads, cache_row]; latent [n_heads, n, kv_rank]. Values are the front of keys.
void attend(Step& step, int layer, const MlaSpec& spec, const float* q, float* latent) {
  Exec& exec = *step.exec;
  ScratchScope scope(*exec.scratch);
  const KvLayer& kv = step.state->kv(layer);
  const int n_groups = (spec.n_heads + kHeadGroup - 1) / kHeadGroup;
  const size_t scores_row =
      static_cast<size_t>(std::min(kHeadGroup, spec.n_heads)) * static_cast<size_t>(step.position + step.n);
  auto* scores = exec.scratch->alloc<float>(scores_row * static_cast<size_t>(exec.pool->n_threads()));
  exec.pool->parallel_for(static_cast<int64_t>(step.n) * n_groups, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = i / n_groups, head = i % n_groups * kHeadGroup;
      AttentionArgs args{};
      args.q = q + (token * spec.n_heads + head) * spec.cache_row();
      args.q_stride = static_cast<size_t>(spec.cache_row());
      args.n_heads = std::min(kHeadGroup, spec.n_heads - static_cast<int>(head));
      args.dim_k = spec.cache_row();
      args.dim_v = spec.kv_rank;
      args.k = args.v = kv.k;
      args.k_stride_bytes = args.v_stride_bytes = kv.k_row_bytes;
      args.k_type = args.v_type = step.state->kv_type();
      args.end = step.position + static_cast<int>(token) + 1;
      args.scale = spec.scale;
      args.scores = scores + scores_row * static_cast<size_t>(thread);
      args.out = latent + (head * step.n + token) * spec.kv_rank;
      args.out_stride = static_cast<size_t>(step.n) * static_cast<size_t>(spec.kv_rank);
      exec.kernels->attention(args);
    }
  });
}

}  // namespace

void mla(Step& step, int layer, const MlaSpec& spec, const MlaWeights& w, const float* x, float* y) {
  Exec& exec = *step.exec;
  ScratchScope scope(*exec.scratch);
  const auto rows = static_cast<size_t>(step.n) * static_cast<size_t>(spec.n_heads);
  const Activations in = quantize(exec, x, step.n, w.kv_a.n_in);
  auto* q = exec.scratch->alloc<float>(rows * static_cast<size_t>(spec.cache_row()));      // [n, heads, cache_row]
  auto* latent = exec.scratch->alloc<float>(rows * static_cast<size_t>(spec.kv_rank));     // [heads, n, kv_rank]
  auto* out = exec.scratch->alloc<float>(rows * static_cast<size_t>(spec.dim_v));          // [n, heads, dim_v]
  absorbed_queries(step, spec, w, in, q);
  store_rows(step, layer, spec, w, in);
  attend(step, layer, spec, q, latent);
  matmul_heads(exec, w.v_b, spec.n_heads, step.n, latent, spec.dim_v, out);
  matmul(exec, w.out, quantize(exec, out, step.n, spec.n_heads * spec.dim_v), y);
}

}  // namespace les
