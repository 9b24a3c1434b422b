// ernie4_5-moe: ERNIE 4.5. Softmax router with a selection bias, shared experts, leading dense layers.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class Ernie45Moe final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    const KeyReader keys(binder.file(), config_.arch);
    LES_ASSIGN_OR_RETURN(const int step, keys.integer_or("interleave_moe_layer_step", 1));
    rope_ = make_rope(RopePairing::kAdjacent, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      layers_[static_cast<size_t>(i)].attn_spec = base_attention(i);
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i));
      const bool has_experts = config_.n_expert > 0 && i >= config_.n_leading_dense && (i + 1) % std::max(1, step) == 0;
      LES_RETURN_IF_ERROR(has_experts ? bind_experts(binder, i, Gating::kSoftmax, true, shared_width())
                                      : bind_dense(binder, i));
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<ModelGraph> make_ernie4_5_moe(const ModelConfig& config) {
  return std::make_unique<Ernie45Moe>(config);
}

}  // namespace les
