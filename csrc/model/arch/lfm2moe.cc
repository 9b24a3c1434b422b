// lfm2moe: LFM2-8B-A1B. Gated short convolutions in place of attention in most layers, a few leading dense layers, then
// experts behind a sigmoid router with a selection bias.
#include <algorithm>

#include "model/arch/registry.h"
#include "model/decoder.h"
#include "model/short_conv.h"

namespace les {

namespace {

struct GatedConvWeights {
  Matrix in, out;  // in: [gate before | gate after | input] of the convolution
  Vector conv;  // [d_model, kernel]
};

class Lfm2Moe final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    const KeyReader keys(binder.file(), config_.arch);
    LES_ASSIGN_OR_RETURN(kernel_, keys.integer("shortconv.l_cache"));
    if (kernel_ < 2 || kernel_ > kMaxKernel) {
      return make_error(Code::kCorrupt, "%s: %s is %d; expected 2 to %d", keys.file().path().c_str(),
                        keys.key("shortconv.l_cache").c_str(), kernel_, kMaxKernel);
    }
    rope_ = make_rope(RopePairing::kHalves, config_.n_rot, config_.rope_base, config_.rope_scaling, nullptr);
    // The final norm's name in these files; the embedding itself has none.
    LES_RETURN_IF_ERROR(bind_head(binder, "token_embd_norm.weight"));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    mixers_.resize(layers_.size());
    for (int i = 0; i < config_.n_layers; ++i) {
      LES_RETURN_IF_ERROR(is_conv(i) ? bind_conv(binder, i) : bind_own_attention(binder, i));
      LES_RETURN_IF_ERROR(i < config_.n_leading_dense ? bind_dense(binder, i)
                                                      : bind_experts(binder, i, Gating::kSigmoid, true, 0));
    }
    return Status::ok();
  }

  // State: the convolution's last inputs. A token's input to it: d_model values.
  LayerStateSpec layer_state(int layer) const override {
    if (!is_conv(layer)) return Decoder::layer_state(layer);
    LayerStateSpec state;
    state.n_recurrent = (kernel_ - 1) * config_.d_model;
    state.n_log = config_.d_model;
    return state;
  }

  size_t scratch_floats_per_token() const override {
    return std::max(Decoder::scratch_floats_per_token(), 14 * static_cast<size_t>(config_.d_model));
  }

 protected:
  void mix(Step& step, int i, const float* h, float* out) override {
    if (is_conv(i)) {
      gated_conv(step, i, h, out);
    } else {
      Decoder::mix(step, i, h, out);
    }
  }

 private:
  static constexpr int kMaxKernel = 7;  // keeps products with d_model within an int

  bool is_conv(int layer) const { return config_.n_kv_heads[static_cast<size_t>(layer)] == 0; }

  Status bind_own_attention(WeightBinder& binder, int i) {
    AttentionSpec& attn = layers_[static_cast<size_t>(i)].attn_spec;
    attn = base_attention(i);
    attn.qk_norm = QkNorm::kPerHead;
    return bind_attention_block(binder, i);
  }

  Status bind_conv(WeightBinder& binder, int i) {
    GatedConvWeights& w = mixers_[static_cast<size_t>(i)];
    const int d = config_.d_model;
    LES_RETURN_IF_ERROR(bind_norms(binder, i));
    LES_RETURN_IF_ERROR(binder.matrix(block_name(i, "shortconv.in_proj.weight"), d, 3 * d, &w.in));
    LES_RETURN_IF_ERROR(binder.vector(block_name(i, "shortconv.conv.weight"), d * kernel_, &w.conv));
    return binder.matrix(block_name(i, "shortconv.out_proj.weight"), d, d, &w.out);
  }

  // y = out(c * conv(b * x)) with [b | c | x] = in(h)
  void gated_conv(Step& step, int i, const float* h, float* y) {
    Exec& exec = *step.exec;
    const GatedConvWeights& w = mixers_[static_cast<size_t>(i)];
    ScratchScope scope(*exec.scratch);
    const int d = config_.d_model;
    const auto width = static_cast<size_t>(d), n = static_cast<size_t>(step.n);
    auto* projected = exec.scratch->alloc<float>(3 * n * width);  // [n, 3 d]
    auto* rows = exec.scratch->alloc<float>(n * width);  // [n, d] inputs of the convolution
    auto* mixed = exec.scratch->alloc<float>(n * width);  // [n, d]
    matmul(exec, w.in, quantize(exec, h, step.n, d), projected);
    for (size_t t = 0; t < n; ++t) {
      const float *before = projected + 3 * t * width, *input = before + 2 * width;
      for (size_t c = 0; c < width; ++c) rows[t * width + c] = before[c] * input[c];
    }
    step.state->advance(i, rows, step.n, [&](float* state, const float* log_rows, int count, int first) {
      float* to = first < 0 ? nullptr : mixed + static_cast<size_t>(first) * width;
      causal_conv(exec, log_rows, count, width, d, w.conv.data, kernel_, nullptr, state, to);
    });
    for (size_t t = 0; t < n; ++t) {
      const float* after = projected + (3 * t + 1) * width;
      for (size_t c = 0; c < width; ++c) mixed[t * width + c] *= after[c];
    }
    matmul(exec, w.out, quantize(exec, mixed, step.n, d), y);
  }

  int kernel_ = 0;
  std::vector<GatedConvWeights> mixers_;  // by layer; empty for those with attention
};

}  // namespace

std::unique_ptr<ModelGraph> make_lfm2moe(const ModelConfig& config) { return std::make_unique<Lfm2Moe>(config); }

}  // namespace les
