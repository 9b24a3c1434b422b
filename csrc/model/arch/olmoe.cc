// olmoe: OLMoE-1B-7B. Norms over the whole query and key, expert weights as the softmax gives them.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class Olmoe final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    rope_ = make_rope(RopePairing::kHalves, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      AttentionSpec& attn = layers_[static_cast<size_t>(i)].attn_spec;
      attn = base_attention(i);
      attn.qk_norm = QkNorm::kFull;
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i));
      LES_RETURN_IF_ERROR(bind_experts(binder, i, Gating::kSoftmax, false, 0));
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<ModelGraph> make_olmoe(const ModelConfig& config) { return std::make_unique<Olmoe>(config); }

}  // namespace les
