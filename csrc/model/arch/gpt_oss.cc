// gpt-oss: gpt-oss-20b and 120b. Attention sinks, a window in every other layer, biases everywhere, a clamped SwiGLU.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class GptOss final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    act_ = Act::kSwigluOai;
    rope_ = make_rope(RopePairing::kHalves, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      AttentionSpec& attn = layers_[static_cast<size_t>(i)].attn_spec;
      attn = base_attention(i);
      attn.window = i % 2 == 0 ? config_.sliding_window : 0;
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i, "post_attention_norm"));
      LES_RETURN_IF_ERROR(bind_experts(binder, i, Gating::kSoftmaxOfChosen, false, 0));
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<ModelGraph> make_gpt_oss(const ModelConfig& config) { return std::make_unique<GptOss>(config); }

}  // namespace les
