#include "model/graph.h"

#include <algorithm>

#include "model/ops.h"

namespace les {

LayerStateSpec ModelGraph::layer_state(int layer) const {
  const auto l = static_cast<size_t>(layer);
  return {config_.n_kv_heads[l], config_.dim_k, config_.dim_v, 0, 0};
}

size_t ModelGraph::scratch_floats_per_token() const {
  const auto widest = [](const std::vector<int>& v) {
    return static_cast<size_t>(v.empty() ? 0 : *std::max_element(v.begin(), v.end()));
  };
  const auto d = static_cast<size_t>(config_.d_model);
  const auto attention = widest(config_.n_heads) * static_cast<size_t>(4 * config_.dim_k + config_.dim_v) +
                         widest(config_.n_kv_heads) * static_cast<size_t>(2 * (config_.dim_k + config_.dim_v));
  const auto ff =
      std::max({widest(config_.ff), static_cast<size_t>(config_.shared_ff),
                static_cast<size_t>(std::max(1, config_.n_shared)) * static_cast<size_t>(config_.expert_ff)});
  const auto used = static_cast<size_t>(config_.n_expert_used);
  const auto experts =
      used * (d * 3 + 4 * static_cast<size_t>(config_.expert_ff)) + static_cast<size_t>(config_.n_expert);
  return 8 * d + std::max({attention + 2 * d, 4 * ff, experts + 4 * ff});
}

Status ModelGraph::bind_head(WeightBinder& binder, const char* norm_name) {
  LES_RETURN_IF_ERROR(binder.vector(norm_name, config_.d_model, &output_norm_));
  LES_RETURN_IF_ERROR(binder.optional_vector("output_norm.bias", config_.d_model, &output_norm_bias_));
  is_tied_ = !binder.has("output.weight");
  const char* output = is_tied_ ? "token_embd.weight" : "output.weight";
  LES_RETURN_IF_ERROR(binder.matrix(output, config_.d_model, config_.n_vocab, &output_));
  return binder.optional_vector("output.bias", config_.n_vocab, &output_bias_);
}

void ModelGraph::run_head(Step& step, const float* x, int n, float* logits) {
  Exec& exec = *step.exec;
  ScratchScope scope(*exec.scratch);
  auto* h = exec.scratch->alloc<float>(static_cast<size_t>(n) * static_cast<size_t>(config_.d_model));
  rms_norm(exec, x, output_norm_, n, config_.d_model, config_.norm_eps, h);
  add_bias(exec, output_norm_bias_, n, h);
  matmul(exec, output_, output_bias_, quantize(exec, h, n, config_.d_model), logits);
}

namespace {

void keep_taps(const Step& step, int layer, const float* x, size_t d) {
  const size_t n_taps = step.tap_layers.size();
  for (size_t i = 0; i < n_taps; ++i) {
    if (step.tap_layers[i] != layer) continue;
    for (size_t t = 0; t < static_cast<size_t>(step.n); ++t)
      std::copy_n(x + t * d, d, step.taps + (t * n_taps + i) * d);
  }
}

}  // namespace

Status ModelGraph::forward(Step& step) {
  ScratchScope scope(*step.exec->scratch);
  auto* x = step.exec->scratch->alloc<float>(static_cast<size_t>(step.n) * static_cast<size_t>(config_.d_model));
  LES_RETURN_IF_ERROR((*step.embed)(step.tokens, x));
  after_embedding(step, x);
  for (int layer = 0; layer < config_.n_layers; ++layer) {
    if (step.is_cancelled != nullptr && step.is_cancelled->load(std::memory_order_relaxed)) {
      return make_error(Code::kCancelled, "cancelled");
    }
    keep_taps(step, layer, x, static_cast<size_t>(config_.d_model));
    LES_RETURN_IF_ERROR(run_layer(step, layer, x));
  }
  keep_taps(step, config_.n_layers, x, static_cast<size_t>(config_.d_model));
  if (step.n_logits > 0) {
    const int first = step.n - step.n_logits;
    run_head(step, x + static_cast<size_t>(first) * static_cast<size_t>(config_.d_model), step.n_logits, step.logits);
  }
  return Status::ok();
}

}  // namespace les
