#include "model/decoder.h"

namespace les {

LayerStateSpec Decoder::layer_state(int layer) const {
  const AttentionSpec& spec = layers_[static_cast<size_t>(layer)].attn_spec;
  return {spec.n_kv_heads, spec.dim_k, spec.dim_v, 0, 0};
}

const MoeSpec* Decoder::moe_spec(int layer) const {
  const DecoderLayer& l = layers_[static_cast<size_t>(layer)];
  return l.has_experts ? &l.moe : nullptr;
}

AttentionSpec Decoder::base_attention(int layer) const {
  AttentionSpec spec;
  spec.n_heads = config_.n_heads[static_cast<size_t>(layer)];
  spec.n_kv_heads = config_.n_kv_heads[static_cast<size_t>(layer)];
  spec.dim_k = config_.dim_k;
  spec.dim_v = config_.dim_v;
  spec.eps = config_.norm_eps;
  spec.rope = &rope_;
  return spec;
}

int Decoder::shared_width() const {
  return config_.shared_ff > 0 ? config_.shared_ff : config_.n_shared * config_.expert_ff;
}

Status Decoder::bind_norms(WeightBinder& binder, int layer, const char* ffn_norm) {
  DecoderLayer& l = layers_[static_cast<size_t>(layer)];
  const int d = config_.d_model;
  const std::string ffn_norm_name = block_name(layer, ffn_norm);
  LES_RETURN_IF_ERROR(binder.vector(block_name(layer, "attn_norm.weight"), d, &l.attn_norm));
  LES_RETURN_IF_ERROR(binder.optional_vector(block_name(layer, "attn_norm.bias"), d, &l.attn_norm_bias));
  LES_RETURN_IF_ERROR(binder.vector(ffn_norm_name + ".weight", d, &l.ffn_norm));
  return binder.optional_vector(ffn_norm_name + ".bias", d, &l.ffn_norm_bias);
}

Status Decoder::bind_attention_block(WeightBinder& binder, int layer, const char* ffn_norm) {
  DecoderLayer& l = layers_[static_cast<size_t>(layer)];
  LES_RETURN_IF_ERROR(bind_norms(binder, layer, ffn_norm));
  return bind_attention(binder, layer, config_.d_model, l.attn_spec, &l.attn);
}

Status Decoder::bind_dense(WeightBinder& binder, int layer) {
  const auto l = static_cast<size_t>(layer);
  return bind_ffn(binder, layer, "", config_.d_model, config_.ff[l], true, &layers_[l].ffn);
}

Status Decoder::bind_experts(WeightBinder& binder, int layer, Gating default_gating, bool default_norm, int shared_ff) {
  DecoderLayer& l = layers_[static_cast<size_t>(layer)];
  l.has_experts = true;
  l.moe.act = act_;
  l.moe.router_norm = &l.ffn_norm;
  l.moe.router_eps = config_.norm_eps;
  LES_RETURN_IF_ERROR(bind_moe(binder, config_, layer, default_gating, default_norm, &l.moe));
  if (shared_ff == 0) return Status::ok();
  return bind_ffn(binder, layer, "_shexp", config_.d_model, shared_ff, true, &l.ffn);
}

void Decoder::after_embedding(Step& step, float* x) {
  if (embedding_scale_ != 1) scale(*step.exec, embedding_scale_, static_cast<int64_t>(step.n) * config_.d_model, x);
}

void Decoder::run_head(Step& step, const float* x, int n, float* logits) {
  ModelGraph::run_head(step, x, n, logits);
  if (logit_scale_ != 1) scale(*step.exec, logit_scale_, static_cast<int64_t>(n) * config_.n_vocab, logits);
}

void Decoder::mix(Step& step, int i, const float* h, float* out) {
  const DecoderLayer& layer = layers_[static_cast<size_t>(i)];
  attention(step, i, layer.attn_spec, layer.attn, h, out);
}

Status Decoder::run_layer(Step& step, int i, float* x) {
  Exec& exec = *step.exec;
  const DecoderLayer& layer = layers_[static_cast<size_t>(i)];
  const int n = step.n, d = config_.d_model;
  const int64_t size = static_cast<int64_t>(n) * d;
  ScratchScope scope(*exec.scratch);
  auto* h = exec.scratch->alloc<float>(static_cast<size_t>(size));    // [n, d] what a block reads
  auto* out = exec.scratch->alloc<float>(static_cast<size_t>(size));  // [n, d] what it adds
  rms_norm(exec, x, layer.attn_norm, n, d, config_.norm_eps, h);
  add_bias(exec, layer.attn_norm_bias, n, h);
  mix(step, i, h, out);
  add_scaled(exec, out, residual_scale_, size, x);
  rms_norm(exec, x, layer.ffn_norm, n, d, config_.norm_eps, h);
  add_bias(exec, layer.ffn_norm_bias, n, h);
  if (!layer.has_experts) {
    ffn(exec, layer.ffn, act_, h, n, out);
  } else {
    LES_RETURN_IF_ERROR(step.moe->run(step, i, layer.moe, h, x, out, [&] {
      if (layer.ffn.up) add_shared_expert(exec, layer.ffn, layer.shared_gate, act_, residual_scale_, h, n, x);
    }));
  }
  add_scaled(exec, out, residual_scale_, size, x);
  return Status::ok();
}

}  // namespace les
