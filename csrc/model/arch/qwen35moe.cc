// qwen35moe, qwen35 (its dense form) and qwen3next: three layers of Gated DeltaNet to one of gated attention, experts
// with a gated shared expert in every layer. MiniCPM-V 4.7 is of this family.
#include "model/arch/registry.h"
#include "model/decoder.h"
#include "model/delta_net.h"

namespace les {

namespace {

class QwenHybrid final : public Decoder {
 public:
  // Qwen3.5 files tile the value heads over the key heads; Qwen3-Next files keep a key head's value heads together.
  QwenHybrid(const ModelConfig& config, HeadOrder order) : Decoder(config) { delta_.order = order; }

  Status bind(WeightBinder& binder) override {
    LES_RETURN_IF_ERROR(read_keys(KeyReader(binder.file(), config_.arch)));
    // M-RoPE sections turn text like plain rotary encoding: its three positions are one.
    rope_ = make_rope(RopePairing::kHalves, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    mixers_.resize(layers_.size());
    for (int i = 0; i < config_.n_layers; ++i) LES_RETURN_IF_ERROR(bind_layer(binder, i));
    return Status::ok();
  }

  LayerStateSpec layer_state(int layer) const override {
    return is_recurrent(layer) ? delta_net_state(delta_) : Decoder::layer_state(layer);
  }

  size_t scratch_floats_per_token() const override {
    const auto conv = static_cast<size_t>(delta_.conv_width()), values = static_cast<size_t>(delta_.value_width());
    return std::max(Decoder::scratch_floats_per_token(), 8 * static_cast<size_t>(config_.d_model) + 3 * conv +
                                                             4 * values + 8 * static_cast<size_t>(delta_.n_v_heads));
  }

 protected:
  void mix(Step& step, int i, const float* h, float* out) override {
    if (is_recurrent(i)) {
      delta_net(step, i, delta_, mixers_[static_cast<size_t>(i)], h, out);
    } else {
      Decoder::mix(step, i, h, out);
    }
  }

 private:
  bool is_recurrent(int layer) const { return recurrent_[static_cast<size_t>(layer)] != 0; }

  Status read_keys(const KeyReader& keys) {
    LES_ASSIGN_OR_RETURN(delta_.conv_kernel, keys.integer("ssm.conv_kernel"));
    LES_ASSIGN_OR_RETURN(delta_.dim, keys.integer("ssm.state_size"));
    LES_ASSIGN_OR_RETURN(delta_.n_k_heads, keys.integer("ssm.group_count"));
    LES_ASSIGN_OR_RETURN(delta_.n_v_heads, keys.integer("ssm.time_step_rank"));
    LES_ASSIGN_OR_RETURN(const int inner, keys.integer("ssm.inner_size"));
    LES_ASSIGN_OR_RETURN(const int interval, keys.integer_or("full_attention_interval", 4));
    delta_.eps = config_.norm_eps;
    if (delta_.conv_kernel < 1 || delta_.n_k_heads < 1 || delta_.n_v_heads % delta_.n_k_heads != 0 || interval < 1 ||
        inner != delta_.value_width()) {
      return make_error(Code::kCorrupt,
                        "%s: %d value heads of %d over %d key heads, inner size %d, interval %d: not a layout",
                        keys.file().path().c_str(), delta_.n_v_heads, delta_.dim, delta_.n_k_heads, inner, interval);
    }
    const int n_blocks = config_.n_layers + config_.n_mtp_layers;
    if (keys.has("attention.recurrent_layers")) {
      LES_ASSIGN_OR_RETURN(recurrent_, keys.per_layer("attention.recurrent_layers", n_blocks, 0));
      return Status::ok();
    }
    for (int i = 0; i < n_blocks; ++i) recurrent_.push_back((i + 1) % interval != 0 ? 1 : 0);
    return Status::ok();
  }

  Status bind_layer(WeightBinder& binder, int i) {
    DecoderLayer& layer = layers_[static_cast<size_t>(i)];
    const int d = config_.d_model;
    if (is_recurrent(i)) {
      LES_RETURN_IF_ERROR(bind_norms(binder, i, "post_attention_norm"));
      LES_RETURN_IF_ERROR(bind_delta_net(binder, i, d, delta_, &mixers_[static_cast<size_t>(i)]));
    } else {
      layer.attn_spec = base_attention(i);
      layer.attn_spec.qk_norm = QkNorm::kPerHead;
      layer.attn_spec.is_gated = true;
      LES_RETURN_IF_ERROR(bind_attention_block(binder, i, "post_attention_norm"));
    }
    if (config_.n_expert == 0) return bind_dense(binder, i);
    const int shared_ff = config_.shared_ff > 0 ? config_.shared_ff : config_.expert_ff;
    LES_RETURN_IF_ERROR(bind_experts(binder, i, Gating::kSoftmax, true, shared_ff));
    return binder.vector(block_name(i, "ffn_gate_inp_shexp.weight"), d, &layer.shared_gate);
  }

  DeltaNetSpec delta_;
  std::vector<int> recurrent_;             // by layer
  std::vector<DeltaNetWeights> mixers_;    // by layer; empty for those with attention
};

}  // namespace

std::unique_ptr<ModelGraph> make_qwen35moe(const ModelConfig& config) {
  return std::make_unique<QwenHybrid>(config, HeadOrder::kTiled);
}

std::unique_ptr<ModelGraph> make_qwen3next(const ModelConfig& config) {
  return std::make_unique<QwenHybrid>(config, HeadOrder::kGrouped);
}

}  // namespace les
