// deepseek: DeepSeek-MoE 16B, the first generation. Plain attention, leading dense layers, shared experts beside the
// routed ones.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class DeepSeek final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    rope_ = make_rope(RopePairing::kAdjacent, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      layers_[static_cast<size_t>(i)].attn_spec = base_attention(i);
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i));
      LES_RETURN_IF_ERROR(i < config_.n_leading_dense
                              ? bind_dense(binder, i)
                              : bind_experts(binder, i, Gating::kSoftmax, false, shared_width()));
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<ModelGraph> make_deepseek(const ModelConfig& config) { return std::make_unique<DeepSeek>(config); }

}  // namespace les
