// phimoe: Phi-3.5-MoE. Norms and head with biases, long-context rotary factors (LongRoPE).
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class PhiMoe final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    LES_RETURN_IF_ERROR(bind_head(binder));
    // One set of divisors serves contexts up to the original length, the other longer ones.
    const bool is_long = config_.context > config_.rope_scaling.original_context;
    LES_RETURN_IF_ERROR(binder.optional_vector(is_long ? "rope_factors_long.weight" : "rope_factors_short.weight",
                                               config_.n_rot / 2, &rope_factors_));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      layers_[static_cast<size_t>(i)].attn_spec = base_attention(i);
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i));
      LES_RETURN_IF_ERROR(bind_experts(binder, i, Gating::kSoftmax, true, 0));
    }
    return Status::ok();
  }

  Status prepare() override {
    rope_ = make_rope(RopePairing::kHalves, config_.n_rot, config_.rope_base, config_.rope_scaling, rope_factors_.data);
    return Status::ok();
  }

 private:
  Vector rope_factors_;
};

}  // namespace

std::unique_ptr<ModelGraph> make_phimoe(const ModelConfig& config) { return std::make_unique<PhiMoe>(config); }

}  // namespace les
