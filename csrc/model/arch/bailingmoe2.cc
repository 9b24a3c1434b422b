// bailingmoe2: Ling and Ring 2.0. Fused query, key and value, half rotary, grouped sigmoid router.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class BailingMoe2 final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    rope_ = make_rope(RopePairing::kHalves, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      AttentionSpec& attn = layers_[static_cast<size_t>(i)].attn_spec;
      attn = base_attention(i);
      attn.qk_norm = QkNorm::kPerHead;
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i));
      LES_RETURN_IF_ERROR(i < config_.n_leading_dense
                              ? bind_dense(binder, i)
                              : bind_experts(binder, i, Gating::kSigmoid, true, shared_width()));
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<ModelGraph> make_bailingmoe2(const ModelConfig& config) {
  return std::make_unique<BailingMoe2>(config);
}

}  // namespace les
