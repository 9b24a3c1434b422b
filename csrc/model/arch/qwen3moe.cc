// qwen3moe, and qwen3 (its dense form): Qwen3-30B-A3B and kin. Head norms on queries and keys.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class Qwen3Moe final : public Decoder {
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
      LES_RETURN_IF_ERROR(config_.n_expert > 0 ? bind_experts(binder, i, Gating::kSoftmax, true, 0)
                                               : bind_dense(binder, i));
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<ModelGraph> make_qwen3moe(const ModelConfig& config) { return std::make_unique<Qwen3Moe>(config); }

}  // namespace les
