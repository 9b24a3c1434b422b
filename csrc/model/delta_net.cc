#include "model/delta_net.h"

#include <algorithm>
#include <cmath>

#include "model/graph.h"
#include "model/short_conv.h"

namespace les {

Status bind_delta_net(WeightBinder& binder, int layer, int d_model, const DeltaNetSpec& spec, DeltaNetWeights* w) {
  const auto name = [layer](const char* suffix) { return block_name(layer, suffix); };
  LES_RETURN_IF_ERROR(binder.matrix(name("attn_qkv.weight"), d_model, spec.conv_width(), &w->qkv));
  LES_RETURN_IF_ERROR(binder.matrix(name("attn_gate.weight"), d_model, spec.value_width(), &w->gate));
  if (binder.has(name("ssm_ba.weight"))) {
    LES_RETURN_IF_ERROR(binder.matrix(name("ssm_ba.weight"), d_model, 2 * spec.n_v_heads, &w->beta_alpha));
  } else {
    LES_RETURN_IF_ERROR(binder.matrix(name("ssm_beta.weight"), d_model, spec.n_v_heads, &w->beta));
    LES_RETURN_IF_ERROR(binder.matrix(name("ssm_alpha.weight"), d_model, spec.n_v_heads, &w->alpha));
  }
  LES_RETURN_IF_ERROR(binder.vector(name("ssm_conv1d.weight"), spec.conv_width() * spec.conv_kernel, &w->conv));
  LES_RETURN_IF_ERROR(binder.vector(name("ssm_dt.bias"), spec.n_v_heads, &w->dt_bias));
  LES_RETURN_IF_ERROR(binder.vector(name("ssm_a"), spec.n_v_heads, &w->a));
  LES_RETURN_IF_ERROR(binder.vector(name("ssm_norm.weight"), spec.dim, &w->norm));
  return binder.matrix(name("ssm_out.weight"), spec.value_width(), d_model, &w->out);
}

// State: convolution history, then one [dim, dim] matrix for each value head. A token's input to the recurrence: its
// convolution channels, then decay and beta of each value head.
LayerStateSpec delta_net_state(const DeltaNetSpec& spec) {
  LayerStateSpec state;
  state.n_recurrent = (spec.conv_kernel - 1) * spec.conv_width() + spec.n_v_heads * spec.dim * spec.dim;
  state.n_log = spec.conv_width() + 2 * spec.n_v_heads;
  return state;
}

namespace {

void l2_normalise(const KernelTable& kernels, const float* x, int n, float eps, float scale, float* y) {
  const float factor = scale / std::sqrt(kernels.dot(x, x, n) + eps);
  for (int i = 0; i < n; ++i) y[i] = x[i] * factor;
}

// Fills the log rows [n, n_log] from the projections.
void make_rows(Exec& exec, const DeltaNetSpec& spec, const DeltaNetWeights& w, const Activations& x, float* rows) {
  ScratchScope scope(*exec.scratch);
  const int n = x.n_cols, heads = spec.n_v_heads, group = heads / spec.n_k_heads;
  const auto width = static_cast<size_t>(spec.conv_width());
  const size_t row_size = width + 2 * static_cast<size_t>(heads);
  const auto count = static_cast<size_t>(n);
  auto* qkv = exec.scratch->alloc<float>(count * width);
  auto* beta = exec.scratch->alloc<float>(count * static_cast<size_t>(heads));
  auto* alpha = exec.scratch->alloc<float>(count * static_cast<size_t>(heads));
  matmul(exec, w.qkv, x, qkv);
  if (w.beta_alpha) {
    auto* both = exec.scratch->alloc<float>(2 * count * static_cast<size_t>(heads));
    matmul(exec, w.beta_alpha, x, both);
    for (int t = 0; t < n; ++t) {
      for (int h = 0; h < heads; ++h) {
        const float* pair = both + t * 2 * heads + h / group * 2 * group + h % group;
        beta[t * heads + h] = pair[0];
        alpha[t * heads + h] = pair[group];
      }
    }
  } else {
    matmul(exec, w.beta, x, beta);
    matmul(exec, w.alpha, x, alpha);
  }
  for (int t = 0; t < n; ++t) {
    float* row = rows + static_cast<size_t>(t) * row_size;
    std::copy_n(qkv + static_cast<size_t>(t) * width, width, row);
    for (int h = 0; h < heads; ++h) {
      row[width + static_cast<size_t>(h)] = std::exp(w.a.data[h] * softplus(alpha[t * heads + h] + w.dt_bias.data[h]));
      row[width + static_cast<size_t>(heads + h)] = sigmoid(beta[t * heads + h]);
    }
  }
}

// Applies `count` log rows to the state; out [count, value_width], or null in a replay.
void recur(Exec& exec, const DeltaNetSpec& spec, const DeltaNetWeights& w, float* state, const float* rows, int count,
           float* out) {
  ScratchScope scope(*exec.scratch);
  const auto width = static_cast<size_t>(spec.conv_width());
  const size_t row_size = width + 2 * static_cast<size_t>(spec.n_v_heads);
  auto* conv = exec.scratch->alloc<float>(static_cast<size_t>(count) * width);
  causal_conv(exec, rows, count, row_size, spec.conv_width(), w.conv.data, spec.conv_kernel, nullptr, state, conv);
  glu(exec, Act::kSilu, conv, nullptr, static_cast<int64_t>(count) * spec.conv_width(), conv);
  float* matrices = state + static_cast<size_t>(spec.conv_kernel - 1) * width;
  const int dim = spec.dim;
  auto* heads_scratch =
      exec.scratch->alloc<float>(3 * static_cast<size_t>(dim) * static_cast<size_t>(exec.pool->n_threads()));
  const float q_scale = 1 / std::sqrt(static_cast<float>(dim));
  exec.pool->parallel_for(spec.n_v_heads, 1, [&](int64_t begin, int64_t end, int thread) {
    float* q = heads_scratch + 3 * static_cast<size_t>(dim) * static_cast<size_t>(thread);
    float *k = q + dim, *unused = k + dim;
    for (int64_t h = begin; h < end; ++h) {
      const int64_t k_head =
          spec.order == HeadOrder::kTiled ? h % spec.n_k_heads : h / (spec.n_v_heads / spec.n_k_heads);
      for (int t = 0; t < count; ++t) {
        const float* channels = conv + static_cast<size_t>(t) * width;
        const float* row = rows + static_cast<size_t>(t) * row_size + width;
        l2_normalise(*exec.kernels, channels + k_head * dim, dim, spec.eps, q_scale, q);
        l2_normalise(*exec.kernels, channels + spec.key_width() + k_head * dim, dim, spec.eps, 1, k);
        exec.kernels->delta_rule(
            matrices + h * dim * dim, q, k, channels + 2 * spec.key_width() + h * dim, row[h], row[spec.n_v_heads + h],
            dim, dim, out == nullptr ? unused : out + static_cast<int64_t>(t) * spec.value_width() + h * dim);
      }
    }
  });
}

}  // namespace

void delta_net(Step& step, int layer, const DeltaNetSpec& spec, const DeltaNetWeights& w, const float* x, float* y) {
  Exec& exec = *step.exec;
  ScratchScope scope(*exec.scratch);
  const auto n = static_cast<size_t>(step.n);
  const auto values = static_cast<size_t>(spec.value_width());
  const Activations act = quantize(exec, x, step.n, w.qkv.n_in);
  auto* rows = exec.scratch->alloc<float>(n * static_cast<size_t>(delta_net_state(spec).n_log));
  auto* z = exec.scratch->alloc<float>(n * values);    // [n, n_v_heads, dim] output gate
  auto* out = exec.scratch->alloc<float>(n * values);  // [n, n_v_heads, dim]
  make_rows(exec, spec, w, act, rows);
  matmul(exec, w.gate, act, z);
  step.state->advance(layer, rows, step.n, [&](float* state, const float* log_rows, int count, int first) {
    recur(exec, spec, w, state, log_rows, count, first < 0 ? nullptr : out + static_cast<size_t>(first) * values);
  });
  rms_norm(exec, out, w.norm, step.n * spec.n_v_heads, spec.dim, spec.eps, out);
  glu(exec, Act::kSilu, z, out, static_cast<int64_t>(n * values), out);
  matmul(exec, w.out, quantize(exec, out, step.n, spec.value_width()), y);
}

}  // namespace les
