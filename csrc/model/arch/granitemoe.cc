// granitemoe: Granite 3 MoE. Scales on embedding, attention, residual and logits; a shared expert in some models.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class GraniteMoe final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    const KeyReader keys(binder.file(), config_.arch);
    LES_ASSIGN_OR_RETURN(embedding_scale_, keys.number_or("embedding_scale", 1));
    LES_ASSIGN_OR_RETURN(residual_scale_, keys.number_or("residual_scale", 1));
    LES_ASSIGN_OR_RETURN(const float logit_divisor, keys.number_or("logit_scale", 1));
    LES_ASSIGN_OR_RETURN(const float attention_scale, keys.number_or("attention.scale", 0));
    if (logit_divisor != 0) logit_scale_ = 1 / logit_divisor;
    rope_ = make_rope(RopePairing::kAdjacent, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      AttentionSpec& attn = layers_[static_cast<size_t>(i)].attn_spec;
      attn = base_attention(i);
      attn.scale = attention_scale;
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i));
      LES_RETURN_IF_ERROR(bind_experts(binder, i, Gating::kSoftmax, true, config_.shared_ff));
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<ModelGraph> make_granitemoe(const ModelConfig& config) { return std::make_unique<GraniteMoe>(config); }

}  // namespace les
