// llama: Llama, Mistral and Mixtral, dense or with experts. Rotary in adjacent pairs.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class Llama final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    LES_RETURN_IF_ERROR(bind_head(binder));
    LES_RETURN_IF_ERROR(binder.optional_vector("rope_freqs.weight", config_.n_rot / 2, &rope_factors_));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      layers_[static_cast<size_t>(i)].attn_spec = base_attention(i);
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i));
      LES_RETURN_IF_ERROR(config_.n_expert > 0 ? bind_experts(binder, i, Gating::kSoftmax, true, 0)
                                               : bind_dense(binder, i));
    }
    return Status::ok();
  }

  Status prepare() override {
    rope_ =
        make_rope(RopePairing::kAdjacent, config_.n_rot, config_.rope_base, config_.rope_scaling, rope_factors_.data);
    return Status::ok();
  }

 private:
  Vector rope_factors_;  // Llama 3 long-context divisors
};

}  // namespace

std::unique_ptr<ModelGraph> make_llama(const ModelConfig& config) { return std::make_unique<Llama>(config); }

}  // namespace les
