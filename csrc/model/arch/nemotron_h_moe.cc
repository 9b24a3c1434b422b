// nemotron_h_moe: Nemotron 3 Nano. Every layer is one norm and one of three: Mamba-2, attention without position
// encoding, or experts. Experts and the shared one are squared ReLU networks without a gate.
#include <algorithm>

#include "model/arch/registry.h"
#include "model/decoder.h"
#include "model/mamba2.h"

namespace les {

namespace {

enum class Kind : int { kMamba, kAttention, kExperts };

class NemotronHMoe final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    LES_ASSIGN_OR_RETURN(mamba_, read_mamba2(KeyReader(binder.file(), config_.arch), config_.norm_eps));
    act_ = Act::kReluSquared;
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    mixers_.resize(layers_.size());
    for (int i = 0; i < config_.n_layers; ++i) LES_RETURN_IF_ERROR(bind_layer(binder, i));
    return Status::ok();
  }

  LayerStateSpec layer_state(int layer) const override {
    return kind(layer) == Kind::kMamba ? mamba2_state(mamba_) : Decoder::layer_state(layer);
  }

  size_t scratch_floats_per_token() const override {
    return std::max(Decoder::scratch_floats_per_token(),
                    5 * static_cast<size_t>(config_.d_model) + mamba2_scratch_floats(mamba_));
  }

 protected:
  Status run_layer(Step& step, int i, float* x) override {
    Exec& exec = *step.exec;
    const DecoderLayer& layer = layers_[static_cast<size_t>(i)];
    const int n = step.n, d = config_.d_model;
    const int64_t size = static_cast<int64_t>(n) * d;
    ScratchScope scope(*exec.scratch);
    auto* h = exec.scratch->alloc<float>(static_cast<size_t>(size));    // [n, d] what the mixer reads
    auto* out = exec.scratch->alloc<float>(static_cast<size_t>(size));  // [n, d] what it adds
    rms_norm(exec, x, layer.attn_norm, n, d, config_.norm_eps, h);
    switch (kind(i)) {
      case Kind::kMamba: mamba2(step, i, mamba_, mixers_[static_cast<size_t>(i)], h, out); break;
      case Kind::kAttention: attention(step, i, layer.attn_spec, layer.attn, h, out); break;
      case Kind::kExperts:
        LES_RETURN_IF_ERROR(step.moe->run(step, i, layer.moe, h, x, out, [&] {
          if (layer.ffn.up) add_shared_expert(exec, layer.ffn, layer.shared_gate, act_, 1, h, n, x);
        }));
        break;
    }
    add_scaled(exec, out, 1, size, x);
    return Status::ok();
  }

 private:
  Kind kind(int layer) const {
    const auto l = static_cast<size_t>(layer);
    if (config_.ff[l] > 0) return Kind::kExperts;
    return config_.n_kv_heads[l] > 0 ? Kind::kAttention : Kind::kMamba;
  }

  Status bind_layer(WeightBinder& binder, int i) {
    DecoderLayer& layer = layers_[static_cast<size_t>(i)];
    const int d = config_.d_model;
    LES_RETURN_IF_ERROR(binder.vector(block_name(i, "attn_norm.weight"), d, &layer.attn_norm));
    switch (kind(i)) {
      case Kind::kMamba: return bind_mamba2(binder, i, d, mamba_, &mixers_[static_cast<size_t>(i)]);
      case Kind::kAttention:
        layer.attn_spec = base_attention(i);
        layer.attn_spec.rope = nullptr;
        return bind_attention(binder, i, d, layer.attn_spec, &layer.attn);
      case Kind::kExperts: break;
    }
    LES_RETURN_IF_ERROR(bind_experts(binder, i, Gating::kSigmoid, true, 0));
    layer.moe.router_norm = &layer.attn_norm;
    const int shared_ff = shared_width();
    return shared_ff == 0 ? Status::ok() : bind_ffn(binder, i, "_shexp", d, shared_ff, false, &layer.ffn);
  }

  Mamba2Spec mamba_;
  std::vector<Mamba2Weights> mixers_;  // by layer; empty for the other kinds
};

}  // namespace

std::unique_ptr<ModelGraph> make_nemotron_h_moe(const ModelConfig& config) {
  return std::make_unique<NemotronHMoe>(config);
}

}  // namespace les
