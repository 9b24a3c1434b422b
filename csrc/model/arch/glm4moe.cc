// glm4moe: GLM-4.5 and its Air. Half rotary, biases, sigmoid router with a selection bias, a leading dense layer. The
// next-token-prediction block at the end takes no part in plain decoding.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class Glm4Moe final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    rope_ = make_rope(RopePairing::kHalves, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      AttentionSpec& attn = layers_[static_cast<size_t>(i)].attn_spec;
      attn = base_attention(i);
      // GLM-4.5 has head norms, its Air has none.
      if (binder.has(block_name(i, "attn_q_norm.weight"))) attn.qk_norm = QkNorm::kPerHead;
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i, "post_attention_norm"));
      LES_RETURN_IF_ERROR(i < config_.n_leading_dense
                              ? bind_dense(binder, i)
                              : bind_experts(binder, i, Gating::kSigmoid, true, shared_width()));
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<ModelGraph> make_glm4moe(const ModelConfig& config) { return std::make_unique<Glm4Moe>(config); }

}  // namespace les
