// qwen2moe, and qwen2 (its dense form): Qwen1.5-MoE and Qwen2-57B-A14B. Biases on queries, keys and values, a gated
// shared expert.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

class Qwen2Moe final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    rope_ = make_rope(RopePairing::kHalves, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      DecoderLayer& layer = layers_[static_cast<size_t>(i)];
      layer.attn_spec = base_attention(i);
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i));
      if (config_.n_expert == 0) {
        LES_RETURN_IF_ERROR(bind_dense(binder, i));
        continue;
      }
      const int shared_ff = config_.shared_ff > 0 ? config_.shared_ff : config_.ff[static_cast<size_t>(i)];
      LES_RETURN_IF_ERROR(bind_experts(binder, i, Gating::kSoftmax, false, shared_ff));
      LES_RETURN_IF_ERROR(
          binder.vector(block_name(i, "ffn_gate_inp_shexp.weight"), config_.d_model, &layer.shared_gate));
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<ModelGraph> make_qwen2moe(const ModelConfig& config) { return std::make_unique<Qwen2Moe>(config); }

}  // namespace les
