// gemma4: Gemma 4 26B-A4B and, without experts, 31B. Windowed layers between full ones whose heads are larger and use
// their keys as values; a norm before and after every block; a dense network beside the experts, which read the stream
// through a norm of their own, as the router does; a scale on each layer's output; capped logits.
#include <cmath>

#include "model/arch/registry.h"
#include "model/decoder.h"

namespace les {

namespace {

// What a layer has beside a common decoder layer. Norms with _1 belong to the dense network, with _2 to the experts.
struct Gemma4Layer {
  Vector post_attention_norm, post_ffw_norm, post_ffw_norm_1, post_ffw_norm_2, pre_ffw_norm_2;
  Vector router_scale;   // [d_model] weight of the norm before the router
  Vector output_scale;   // [1]
};

class Gemma4 final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    const KeyReader keys(binder.file(), config_.arch);
    LES_RETURN_IF_ERROR(read_keys(keys));
    act_ = Act::kGeluTanh;
    embedding_scale_ = std::sqrt(static_cast<float>(config_.d_model));
    window_rope_ = make_rope(RopePairing::kHalves, window_n_rot_, window_rope_base_, RopeScaling{}, nullptr);
    LES_RETURN_IF_ERROR(bind_head(binder));
    // In full layers most pairs of a head do not turn: their divisors are huge.
    LES_RETURN_IF_ERROR(binder.vector("rope_freqs.weight", config_.n_rot / 2, &rope_factors_));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    more_.resize(layers_.size());
    for (int i = 0; i < config_.n_layers; ++i) LES_RETURN_IF_ERROR(bind_layer(binder, i));
    return Status::ok();
  }

  Status prepare() override {
    rope_ = make_rope(RopePairing::kHalves, config_.n_rot, config_.rope_base, config_.rope_scaling, rope_factors_.data);
    return Status::ok();
  }

  size_t scratch_floats_per_token() const override {
    // The experts' inputs and outputs lie beside the dense network's.
    return Decoder::scratch_floats_per_token() + 4 * static_cast<size_t>(config_.d_model);
  }

 protected:
  Status run_layer(Step& step, int i, float* x) override {
    Exec& exec = *step.exec;
    const DecoderLayer& layer = layers_[static_cast<size_t>(i)];
    const Gemma4Layer& more = more_[static_cast<size_t>(i)];
    const int n = step.n, d = config_.d_model;
    const float eps = config_.norm_eps;
    const int64_t size = static_cast<int64_t>(n) * d;
    ScratchScope scope(*exec.scratch);
    auto* h = exec.scratch->alloc<float>(static_cast<size_t>(size));    // [n, d] what a block reads
    auto* out = exec.scratch->alloc<float>(static_cast<size_t>(size));  // [n, d] what it adds
    rms_norm(exec, x, layer.attn_norm, n, d, eps, h);
    mix(step, i, h, out);
    rms_norm(exec, out, more.post_attention_norm, n, d, eps, out);
    add_scaled(exec, out, 1, size, x);

    const auto dense = [&] {
      rms_norm(exec, x, layer.ffn_norm, n, d, eps, h);
      ffn(exec, layer.ffn, act_, h, n, out);
    };
    if (layer.has_experts) {
      LES_RETURN_IF_ERROR(run_experts(step, i, x, h, out, dense));
    } else {
      dense();
    }
    rms_norm(exec, out, more.post_ffw_norm, n, d, eps, out);
    add_scaled(exec, out, 1, size, x);
    if (more.output_scale) scale(exec, more.output_scale.data[0], size, x);
    return Status::ok();
  }

  void run_head(Step& step, const float* x, int n, float* logits) override {
    Decoder::run_head(step, x, n, logits);
    if (logit_cap_ > 0) softcap(*step.exec, logit_cap_, static_cast<int64_t>(n) * config_.n_vocab, logits);
  }

 private:
  // out [n, d] = norm_1(dense network) + norm_2(experts) of the stream x [n, d]; `dense` fills out, and uses h, while
  // the experts are read.
  template <typename DenseFn>
  Status run_experts(Step& step, int i, const float* x, float* h, float* out, const DenseFn& dense) {
    Exec& exec = *step.exec;
    const MoeSpec& moe = layers_[static_cast<size_t>(i)].moe;
    const Gemma4Layer& more = more_[static_cast<size_t>(i)];
    const int n = step.n, d = config_.d_model;
    const int64_t size = static_cast<int64_t>(n) * d;
    ScratchScope scope(*exec.scratch);
    auto* read = exec.scratch->alloc<float>(static_cast<size_t>(size));    // [n, d] what the experts read
    auto* routed = exec.scratch->alloc<float>(static_cast<size_t>(size));  // [n, d] their sum
    rms_norm(exec, x, more.router_scale, n, d, config_.norm_eps, h);
    const Routing routing = step.moe->route(step, i, moe, h);
    rms_norm(exec, x, more.pre_ffw_norm_2, n, d, config_.norm_eps, read);
    LES_RETURN_IF_ERROR(step.moe->experts(step, i, moe, routing, read, x, routed, dense));
    rms_norm(exec, out, more.post_ffw_norm_1, n, d, config_.norm_eps, out);
    rms_norm(exec, routed, more.post_ffw_norm_2, n, d, config_.norm_eps, routed);
    add_scaled(exec, routed, 1, size, out);
    return Status::ok();
  }

  Status read_keys(const KeyReader& keys) {
    LES_ASSIGN_OR_RETURN(window_dim_k_, keys.integer_or("attention.key_length_swa", config_.dim_k));
    LES_ASSIGN_OR_RETURN(window_dim_v_, keys.integer_or("attention.value_length_swa", config_.dim_v));
    LES_ASSIGN_OR_RETURN(window_n_rot_, keys.integer_or("rope.dimension_count_swa", window_dim_k_));
    LES_ASSIGN_OR_RETURN(window_rope_base_, keys.number_or("rope.freq_base_swa", 10000));
    LES_ASSIGN_OR_RETURN(logit_cap_, keys.number_or("final_logit_softcapping", 0));
    LES_ASSIGN_OR_RETURN(const int n_shared_kv, keys.integer_or("attention.shared_kv_layers", 0));
    LES_ASSIGN_OR_RETURN(const int per_layer_input, keys.integer_or("embedding_length_per_layer_input", 0));
    if (n_shared_kv != 0 || per_layer_input != 0) {
      return make_error(Code::kUnsupported,
                        "%s: %d layers share keys and values, per-layer embeddings of %d; gemma4 models with either "
                        "are not supported",
                        keys.file().path().c_str(), n_shared_kv, per_layer_input);
    }
    if (!keys.has("attention.sliding_window_pattern") || config_.sliding_window < 1) {
      return make_error(Code::kCorrupt, "%s: gemma4.attention.sliding_window or its _pattern is missing",
                        keys.file().path().c_str());
    }
    LES_ASSIGN_OR_RETURN(has_window_, keys.per_layer("attention.sliding_window_pattern", config_.n_layers, 0));
    if (window_n_rot_ % 2 != 0 || window_n_rot_ > window_dim_k_ || config_.n_rot > config_.dim_k) {
      return make_error(Code::kCorrupt, "%s: %d and %d rotary dimensions of heads of %d and %d: not an even part",
                        keys.file().path().c_str(), config_.n_rot, window_n_rot_, config_.dim_k, window_dim_k_);
    }
    return Status::ok();
  }

  Status bind_layer(WeightBinder& binder, int i) {
    DecoderLayer& layer = layers_[static_cast<size_t>(i)];
    Gemma4Layer& more = more_[static_cast<size_t>(i)];
    const int d = config_.d_model;
    const auto name = [i](const char* suffix) { return block_name(i, suffix); };
    AttentionSpec& attn = layer.attn_spec;
    attn = base_attention(i);
    attn.scale = 1;
    attn.qk_norm = QkNorm::kPerHead;
    attn.norm_v = true;
    attn.v_is_k = !binder.has(name("attn_v.weight"));
    if (has_window_[static_cast<size_t>(i)] != 0) {
      attn.dim_k = window_dim_k_;
      attn.dim_v = window_dim_v_;
      attn.window = config_.sliding_window;
      attn.rope = &window_rope_;
    }
    if (attn.v_is_k && attn.dim_k != attn.dim_v) {
      return make_error(Code::kCorrupt, "%s: layer %d uses keys of %d as values of %d", binder.file().path().c_str(), i,
                        attn.dim_k, attn.dim_v);
    }
    LES_RETURN_IF_ERROR(bind_attention_block(binder, i));
    LES_RETURN_IF_ERROR(bind_dense(binder, i));
    LES_RETURN_IF_ERROR(binder.vector(name("post_attention_norm.weight"), d, &more.post_attention_norm));
    LES_RETURN_IF_ERROR(binder.vector(name("post_ffw_norm.weight"), d, &more.post_ffw_norm));
    LES_RETURN_IF_ERROR(binder.optional_vector(name("layer_output_scale.weight"), 1, &more.output_scale));
    if (config_.n_expert == 0) return Status::ok();
    LES_RETURN_IF_ERROR(bind_experts(binder, i, Gating::kSoftmax, true, 0));
    layer.moe.router.logit_scale = 1 / std::sqrt(static_cast<float>(d));
    layer.moe.router_norm = &more.router_scale;
    LES_RETURN_IF_ERROR(binder.vector(name("ffn_gate_inp.scale"), d, &more.router_scale));
    LES_RETURN_IF_ERROR(binder.vector(name("pre_ffw_norm_2.weight"), d, &more.pre_ffw_norm_2));
    LES_RETURN_IF_ERROR(binder.vector(name("post_ffw_norm_1.weight"), d, &more.post_ffw_norm_1));
    return binder.vector(name("post_ffw_norm_2.weight"), d, &more.post_ffw_norm_2);
  }

  int window_dim_k_ = 0, window_dim_v_ = 0, window_n_rot_ = 0;
  float window_rope_base_ = 10000, logit_cap_ = 0;
  std::vector<int> has_window_;        // by layer
  std::vector<Gemma4Layer> more_;      // by layer
  Rope window_rope_;
  Vector rope_factors_;
};

}  // namespace

std::unique_ptr<ModelGraph> make_gemma4(const ModelConfig& config) { return std::make_unique<Gemma4>(config); }

}  // namespace les
