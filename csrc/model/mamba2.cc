#include "model/mamba2.h"

#include <algorithm>
#include <cmath>

#include "model/graph.h"
#include "model/short_conv.h"

namespace les {

Result<Mamba2Spec> read_mamba2(const KeyReader& keys, float norm_eps) {
  Mamba2Spec spec;
  LES_ASSIGN_OR_RETURN(spec.conv_kernel, keys.integer("ssm.conv_kernel"));
  LES_ASSIGN_OR_RETURN(spec.state_dim, keys.integer("ssm.state_size"));
  LES_ASSIGN_OR_RETURN(spec.n_groups, keys.integer("ssm.group_count"));
  LES_ASSIGN_OR_RETURN(spec.n_heads, keys.integer("ssm.time_step_rank"));
  LES_ASSIGN_OR_RETURN(const int inner, keys.integer("ssm.inner_size"));
  spec.eps = norm_eps;
  // Far above any real model, and low enough that no product of sizes overflows.
  constexpr int kMaxInner = 1 << 20, kMaxState = 1 << 10, kMaxKernel = 64;
  const bool is_layout = spec.conv_kernel >= 2 && spec.conv_kernel <= kMaxKernel && spec.state_dim >= 1 &&
                         spec.state_dim <= kMaxState && inner >= 1 && inner <= kMaxInner && spec.n_groups >= 1 &&
                         spec.n_heads >= 1 && spec.n_groups <= kMaxInner / spec.state_dim &&
                         spec.n_heads % spec.n_groups == 0 && inner % spec.n_heads == 0;
  if (!is_layout) {
    return make_error(Code::kCorrupt, "%s: inner size %d in %d heads and %d groups, state %d, kernel %d: not a layout",
                      keys.file().path().c_str(), inner, spec.n_heads, spec.n_groups, spec.state_dim, spec.conv_kernel);
  }
  spec.head_dim = inner / spec.n_heads;
  return spec;
}

Status bind_mamba2(WeightBinder& binder, int layer, int d_model, const Mamba2Spec& spec, Mamba2Weights* w) {
  const auto name = [layer](const char* suffix) { return block_name(layer, suffix); };
  LES_RETURN_IF_ERROR(binder.matrix(name("ssm_in.weight"), d_model, spec.in_width(), &w->in));
  LES_RETURN_IF_ERROR(binder.vector(name("ssm_conv1d.weight"), spec.conv_width() * spec.conv_kernel, &w->conv));
  LES_RETURN_IF_ERROR(binder.optional_vector(name("ssm_conv1d.bias"), spec.conv_width(), &w->conv_bias));
  LES_RETURN_IF_ERROR(binder.vector(name("ssm_dt.bias"), spec.n_heads, &w->dt_bias));
  LES_RETURN_IF_ERROR(binder.vector(name("ssm_a"), spec.n_heads, &w->a));
  LES_RETURN_IF_ERROR(binder.vector(name("ssm_d"), spec.n_heads, &w->d));
  LES_RETURN_IF_ERROR(binder.vector(name("ssm_norm.weight"), spec.inner(), &w->norm));
  return binder.matrix(name("ssm_out.weight"), spec.inner(), d_model, &w->out);
}

// State: convolution history, then one [head_dim, state_dim] matrix for each head. A token's input to the recurrence:
// its convolution channels, then decay and step size of each head.
LayerStateSpec mamba2_state(const Mamba2Spec& spec) {
  LayerStateSpec state;
  state.n_recurrent = (spec.conv_kernel - 1) * spec.conv_width() + spec.inner() * spec.state_dim;
  state.n_log = spec.conv_width() + 2 * spec.n_heads;
  return state;
}

size_t mamba2_scratch_floats(const Mamba2Spec& spec) {
  const auto inner = static_cast<size_t>(spec.inner()), conv = static_cast<size_t>(spec.conv_width());
  // Projection, log rows, convolved channels, output, its rounded form, alignment.
  return static_cast<size_t>(spec.in_width()) + 2 * conv + 2 * static_cast<size_t>(spec.n_heads) + 2 * inner + 64;
}

namespace {

// Fills the log rows [n, n_log] from the projection [n, in_width].
void make_rows(const Mamba2Spec& spec, const Mamba2Weights& w, const float* projected, int n, float* rows) {
  const auto width = static_cast<size_t>(spec.conv_width()), heads = static_cast<size_t>(spec.n_heads);
  for (int t = 0; t < n; ++t) {
    const float* channels =
        projected + static_cast<size_t>(t) * static_cast<size_t>(spec.in_width()) + static_cast<size_t>(spec.inner());
    float* row = rows + static_cast<size_t>(t) * (width + 2 * heads);
    std::copy_n(channels, width, row);
    for (size_t h = 0; h < heads; ++h) {
      const float step_size = softplus(channels[width + h] + w.dt_bias.data[h]);
      row[width + h] = std::exp(w.a.data[h] * step_size);
      row[width + heads + h] = step_size;
    }
  }
}

// Applies `count` log rows to the state; out [count, inner], or null in a replay.
void recur(Exec& exec, const Mamba2Spec& spec, const Mamba2Weights& w, float* state, const float* rows, int count,
           float* out) {
  ScratchScope scope(*exec.scratch);
  const auto width = static_cast<size_t>(spec.conv_width());
  const size_t row_size = width + 2 * static_cast<size_t>(spec.n_heads);
  auto* conv = exec.scratch->alloc<float>(static_cast<size_t>(count) * width);
  causal_conv(exec, rows, count, row_size, spec.conv_width(), w.conv.data, spec.conv_kernel, w.conv_bias.data, state,
              conv);
  glu(exec, Act::kSilu, conv, nullptr, static_cast<int64_t>(count) * spec.conv_width(), conv);
  float* matrices = state + static_cast<size_t>(spec.conv_kernel - 1) * width;
  const int dim = spec.head_dim, n_state = spec.state_dim, inner = spec.inner();
  auto* unused = exec.scratch->alloc<float>(static_cast<size_t>(dim) * static_cast<size_t>(exec.pool->n_threads()));
  exec.pool->parallel_for(spec.n_heads, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t h = begin; h < end; ++h) {
      const int64_t group = h / (spec.n_heads / spec.n_groups);
      for (int t = 0; t < count; ++t) {
        const float* channels = conv + static_cast<size_t>(t) * width;
        const float* row = rows + static_cast<size_t>(t) * row_size + width;
        const float* x = channels + h * dim;
        const float* b = channels + inner + group * n_state;
        float* y = out == nullptr ? unused + static_cast<int64_t>(thread) * dim
                                  : out + static_cast<int64_t>(t) * inner + h * dim;
        exec.kernels->decay_rule(matrices + h * dim * n_state, b + spec.n_groups * n_state, b, x, row[h],
                                 row[spec.n_heads + h], n_state, dim, y);
        exec.kernels->add_scaled(x, w.d.data[h], dim, y);
      }
    }
  });
}

// out [n, inner] *= silu(z), then RMS norm over each group of channels. z: rows in_width apart.
void gate_and_norm(Exec& exec, const Mamba2Spec& spec, const Mamba2Weights& w, const float* z, int n, float* out) {
  const int size = spec.inner() / spec.n_groups;
  exec.pool->parallel_for(static_cast<int64_t>(n) * spec.n_groups, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % spec.n_groups * size;
      float* y = out + i * size;
      exec.kernels->glu(Act::kSilu, z + i / spec.n_groups * spec.in_width() + first, y, size, y);
      exec.kernels->rms_norm(y, w.norm.data + first, size, spec.eps, y);
    }
  });
}

}  // namespace

void mamba2(Step& step, int layer, const Mamba2Spec& spec, const Mamba2Weights& w, const float* x, float* y) {
  Exec& exec = *step.exec;
  ScratchScope scope(*exec.scratch);
  const auto n = static_cast<size_t>(step.n), inner = static_cast<size_t>(spec.inner());
  auto* projected = exec.scratch->alloc<float>(n * static_cast<size_t>(spec.in_width()));
  auto* rows = exec.scratch->alloc<float>(n * static_cast<size_t>(mamba2_state(spec).n_log));
  auto* out = exec.scratch->alloc<float>(n * inner);  // [n, n_heads, head_dim]
  matmul(exec, w.in, quantize(exec, x, step.n, w.in.n_in), projected);
  make_rows(spec, w, projected, step.n, rows);
  step.state->advance(layer, rows, step.n, [&](float* state, const float* log_rows, int count, int first) {
    recur(exec, spec, w, state, log_rows, count, first < 0 ? nullptr : out + static_cast<size_t>(first) * inner);
  });
  gate_and_norm(exec, spec, w, projected, step.n, out);
  matmul(exec, w.out, quantize(exec, out, step.n, spec.inner()), y);
}

}  // namespace les
