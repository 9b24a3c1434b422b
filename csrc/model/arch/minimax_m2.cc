// minimax-m2: MiniMax-M2. Norms over the whole query and key, partial rotary, sigmoid router with a selection bias.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class MiniMaxM2 final : public Decoder {
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
      LES_RETURN_IF_ERROR(bind_experts(binder, i, Gating::kSigmoid, true, 0));
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<ModelGraph> make_minimax_m2(const ModelConfig& config) { return std::make_unique<MiniMaxM2>(config); }

}  // namespace les
