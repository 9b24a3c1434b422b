// qwen35moe, qwen35 (its dense form) and qwen3next: three layers of Gated DeltaNet to one of gated attention, experts
// with a gated shared expert in every layer. MiniCPM-V 4.7 is of this family.
#include "model/arch/registry.h"
#include "model/attention.h"
#include "model/delta_net.h"
#include "model/ffn.h"
#include "model/graph.h"

namespace les {

namespace {

struct Layer {
  bool is_recurrent = false;
  Vector attn_norm, ffn_norm;
  AttentionWeights attn;
  DeltaNetWeights delta;
  MoeSpec moe;
  FfnWeights ffn;        // the shared expert, or a dense model's network
  Vector shared_gate;
};

class QwenHybrid final : public ModelGraph {
 public:
  // Qwen3.5 files tile the value heads over the key heads; Qwen3-Next files keep a key head's value heads together.
  QwenHybrid(const ModelConfig& config, HeadOrder order) : ModelGraph(config) { delta_.order = order; }

  Status bind(WeightBinder& binder) override {
    const KeyReader keys(binder.file(), config_.arch);
    LES_RETURN_IF_ERROR(read_keys(keys));
    LES_RETURN_IF_ERROR(bind_head(binder));
    for (int i = 0; i < config_.n_layers; ++i) LES_RETURN_IF_ERROR(bind_layer(binder, i));
    return Status::ok();
  }

  LayerStateSpec layer_state(int layer) const override {
    return layers_[static_cast<size_t>(layer)].is_recurrent ? delta_net_state(delta_) : ModelGraph::layer_state(layer);
  }

  size_t scratch_floats_per_token() const override {
    const auto conv = static_cast<size_t>(delta_.conv_width()), values = static_cast<size_t>(delta_.value_width());
    return std::max(ModelGraph::scratch_floats_per_token(),
                    8 * static_cast<size_t>(config_.d_model) + 3 * conv + 4 * values + 8 * static_cast<size_t>(delta_.n_v_heads));
  }

  const MoeSpec* moe_spec(int layer) const override {
    return config_.n_expert > 0 ? &layers_[static_cast<size_t>(layer)].moe : nullptr;
  }

 protected:
  Status run_layer(Step& step, int i, float* x) override {
    Exec& exec = *step.exec;
    const Layer& layer = layers_[static_cast<size_t>(i)];
    const int d = config_.d_model;
    const int64_t size = static_cast<int64_t>(step.n) * d;
    ScratchScope scope(*exec.scratch);
    auto* h = exec.scratch->alloc<float>(static_cast<size_t>(size));    // [n, d] what a block reads
    auto* out = exec.scratch->alloc<float>(static_cast<size_t>(size));  // [n, d] what it adds
    rms_norm(exec, x, layer.attn_norm, step.n, d, config_.norm_eps, h);
    if (layer.is_recurrent) {
      delta_net(step, i, delta_, layer.delta, h, out);
    } else {
      attention(step, i, attn_, layer.attn, h, out);
    }
    add_scaled(exec, out, 1, size, x);
    rms_norm(exec, x, layer.ffn_norm, step.n, d, config_.norm_eps, h);
    if (config_.n_expert == 0) {
      ffn(exec, layer.ffn, Act::kSilu, h, step.n, out);
    } else {
      LES_RETURN_IF_ERROR(step.moe->run(step, i, layer.moe, h, x, out, [&] {
        add_shared_expert(exec, layer.ffn, layer.shared_gate, Act::kSilu, 1, h, step.n, x);
      }));
    }
    add_scaled(exec, out, 1, size, x);
    return Status::ok();
  }

 private:
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
      return make_error(Code::kCorrupt, "%s: %d value heads of %d over %d key heads, inner size %d, interval %d: not a layout",
                        keys.file().path().c_str(), delta_.n_v_heads, delta_.dim, delta_.n_k_heads, inner, interval);
    }
    const int n_blocks = config_.n_layers + config_.n_mtp_layers;
    LES_ASSIGN_OR_RETURN(const std::vector<int> recurrent, keys.per_layer("attention.recurrent_layers", n_blocks, -1));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      const int flag = recurrent[static_cast<size_t>(i)];
      layers_[static_cast<size_t>(i)].is_recurrent = flag < 0 ? (i + 1) % interval != 0 : flag != 0;
    }
    attn_.n_heads = config_.n_heads[0];
    attn_.n_kv_heads = config_.n_kv_heads[0];
    attn_.dim_k = config_.dim_k;
    attn_.dim_v = config_.dim_v;
    attn_.qk_norm = QkNorm::kPerHead;
    attn_.is_gated = true;
    attn_.eps = config_.norm_eps;
    attn_.rope = &rope_;
    // M-RoPE sections turn text like plain rotary encoding: its three positions are one.
    rope_ = make_rope(RopePairing::kHalves, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    return Status::ok();
  }

  Status bind_layer(WeightBinder& binder, int i) {
    Layer& layer = layers_[static_cast<size_t>(i)];
    const int d = config_.d_model;
    LES_RETURN_IF_ERROR(binder.vector(block_name(i, "attn_norm.weight"), d, &layer.attn_norm));
    LES_RETURN_IF_ERROR(binder.vector(block_name(i, "post_attention_norm.weight"), d, &layer.ffn_norm));
    if (layer.is_recurrent) {
      LES_RETURN_IF_ERROR(bind_delta_net(binder, i, d, delta_, &layer.delta));
    } else {
      LES_RETURN_IF_ERROR(bind_attention(binder, i, d, attn_, &layer.attn));
    }
    if (config_.n_expert == 0) {
      return bind_ffn(binder, i, "", d, config_.ff[static_cast<size_t>(i)], true, &layer.ffn);
    }
    layer.moe.router_norm = &layer.ffn_norm;
    layer.moe.router_eps = config_.norm_eps;
    LES_RETURN_IF_ERROR(bind_moe(binder, config_, i, Gating::kSoftmax, true, &layer.moe));
    const int shared_ff = config_.shared_ff > 0 ? config_.shared_ff : config_.expert_ff;
    LES_RETURN_IF_ERROR(bind_ffn(binder, i, "_shexp", d, shared_ff, true, &layer.ffn));
    return binder.vector(block_name(i, "ffn_gate_inp_shexp.weight"), d, &layer.shared_gate);
  }

  AttentionSpec attn_;
  DeltaNetSpec delta_;
  Rope rope_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<ModelGraph> make_qwen35(const ModelConfig& config) {
  return std::make_unique<QwenHybrid>(config, HeadOrder::kTiled);
}

std::unique_ptr<ModelGraph> make_qwen35moe(const ModelConfig& config) {
  return std::make_unique<QwenHybrid>(config, HeadOrder::kTiled);
}

std::unique_ptr<ModelGraph> make_qwen3next(const ModelConfig& config) {
  return std::make_unique<QwenHybrid>(config, HeadOrder::kGrouped);
}

}  // namespace les
