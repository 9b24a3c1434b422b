// smallthinker: SmallThinker-21B-A3B and 4B-A0.6B. The router reads the layer's input, before attention, so the experts
// are known, and their reads start, while attention still computes. ReLU experts; every fourth layer attends to
// everything and has no position encoding, the others have a window.
#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

// The published models' window; their files carry other numbers.
constexpr int kWindow = 4096;

class SmallThinker final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    act_ = Act::kRelu;
    rope_ = make_rope(RopePairing::kHalves, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      AttentionSpec& attn = layers_[static_cast<size_t>(i)].attn_spec;
      attn = base_attention(i);
      const bool is_global = config_.sliding_window > 0 && i % 4 == 0;
      if (is_global) attn.rope = nullptr;
      attn.window = is_global || config_.sliding_window == 0 ? 0 : kWindow;
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i));
      LES_RETURN_IF_ERROR(bind_experts(binder, i, Gating::kSoftmax, true, 0));
    }
    return Status::ok();
  }

 protected:
  Status run_layer(Step& step, int i, float* x) override {
    Exec& exec = *step.exec;
    const DecoderLayer& layer = layers_[static_cast<size_t>(i)];
    const int n = step.n, d = config_.d_model;
    const int64_t size = static_cast<int64_t>(n) * d;
    ScratchScope scope(*exec.scratch);
    auto* h = exec.scratch->alloc<float>(static_cast<size_t>(size));  // [n, d] what a block reads
    auto* out = exec.scratch->alloc<float>(static_cast<size_t>(size));  // [n, d] what it adds
    const Routing routing = step.moe->route(step, i, layer.moe, x);
    step.moe->announce(step, i, routing);
    rms_norm(exec, x, layer.attn_norm, n, d, config_.norm_eps, h);
    attention(step, i, layer.attn_spec, layer.attn, h, out);
    add_scaled(exec, out, 1, size, x);
    rms_norm(exec, x, layer.ffn_norm, n, d, config_.norm_eps, h);
    LES_RETURN_IF_ERROR(step.moe->experts(step, i, layer.moe, routing, h, nullptr, out));
    add_scaled(exec, out, 1, size, x);
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<ModelGraph> make_smallthinker(const ModelConfig& config) {
  return std::make_unique<SmallThinker>(config);
}

}  // namespace les
