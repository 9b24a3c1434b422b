// granitemoe (Granite 3 MoE) and granitehybrid (Granite 4 H): scales on embedding, attention, residual and logits, a
// shared expert in most models. In the hybrid ones most layers are Mamba-2 and attention knows no positions.
#include <algorithm>

#include "model/arch/registry.h"
#include "model/decoder.h"
#include "model/mamba2.h"

namespace les {

namespace {

class Granite final : public Decoder {
 public:
  Granite(const ModelConfig& config, bool is_hybrid) : Decoder(config), is_hybrid_(is_hybrid) {}

  Status bind(WeightBinder& binder) override {
    const KeyReader keys(binder.file(), config_.arch);
    LES_ASSIGN_OR_RETURN(embedding_scale_, keys.number_or("embedding_scale", 1));
    LES_ASSIGN_OR_RETURN(residual_scale_, keys.number_or("residual_scale", 1));
    LES_ASSIGN_OR_RETURN(const float logit_divisor, keys.number_or("logit_scale", 1));
    LES_ASSIGN_OR_RETURN(const float attention_scale, keys.number_or("attention.scale", 0));
    if (logit_divisor != 0) logit_scale_ = 1 / logit_divisor;
    if (is_hybrid_) {
      LES_ASSIGN_OR_RETURN(mamba_, read_mamba2(keys, config_.norm_eps));
      // These files say by this key whether attention turns queries and keys at all.
      LES_ASSIGN_OR_RETURN(has_rope_, keys.boolean_or("rope.scaling.finetuned", true));
    }
    rope_ = make_rope(RopePairing::kAdjacent, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    mixers_.resize(layers_.size());
    for (int i = 0; i < config_.n_layers; ++i) {
      LES_RETURN_IF_ERROR(is_recurrent(i) ? bind_recurrent(binder, i) : bind_own_attention(binder, i, attention_scale));
      LES_RETURN_IF_ERROR(config_.n_expert == 0 ? bind_dense(binder, i)
                                                : bind_experts(binder, i, Gating::kSoftmax, true, config_.shared_ff));
    }
    return Status::ok();
  }

  LayerStateSpec layer_state(int layer) const override {
    return is_recurrent(layer) ? mamba2_state(mamba_) : Decoder::layer_state(layer);
  }

  size_t scratch_floats_per_token() const override {
    const size_t decoder = Decoder::scratch_floats_per_token();
    if (!is_hybrid_) return decoder;
    return std::max(decoder, 5 * static_cast<size_t>(config_.d_model) + mamba2_scratch_floats(mamba_));
  }

 protected:
  void mix(Step& step, int i, const float* h, float* out) override {
    if (is_recurrent(i)) {
      mamba2(step, i, mamba_, mixers_[static_cast<size_t>(i)], h, out);
    } else {
      Decoder::mix(step, i, h, out);
    }
  }

 private:
  bool is_recurrent(int layer) const { return is_hybrid_ && config_.n_kv_heads[static_cast<size_t>(layer)] == 0; }

  Status bind_recurrent(WeightBinder& binder, int i) {
    LES_RETURN_IF_ERROR(bind_norms(binder, i));
    return bind_mamba2(binder, i, config_.d_model, mamba_, &mixers_[static_cast<size_t>(i)]);
  }

  Status bind_own_attention(WeightBinder& binder, int i, float scale) {
    AttentionSpec& attn = layers_[static_cast<size_t>(i)].attn_spec;
    attn = base_attention(i);
    attn.scale = scale;
    if (!has_rope_) attn.rope = nullptr;
    return bind_attention_block(binder, i);
  }

  bool is_hybrid_ = false, has_rope_ = true;
  Mamba2Spec mamba_;
  std::vector<Mamba2Weights> mixers_;  // by layer; empty for those with attention
};

}  // namespace

std::unique_ptr<ModelGraph> make_granitemoe(const ModelConfig& config) {
  return std::make_unique<Granite>(config, false);
}

std::unique_ptr<ModelGraph> make_granitehybrid(const ModelConfig& config) {
  return std::make_unique<Granite>(config, true);
}

}  // namespace les
