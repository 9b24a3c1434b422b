// deepseek2: DeepSeek-V2, V3 and R1, Kimi-K2, GLM-4.7-Flash. Latent attention, leading dense layers, shared experts;
// softmax or sigmoid router, with selection bias and groups where the file has them.
#include <algorithm>
#include <cmath>

#include "model/arch/registry.h"
#include "model/decoder.h"
#include "model/mla.h"

namespace les {

namespace {

class DeepSeek2 final : public Decoder {
 public:
  using Decoder::Decoder;

  Status bind(WeightBinder& binder) override {
    LES_RETURN_IF_ERROR(read_sizes(binder.file()));
    LES_RETURN_IF_ERROR(bind_head(binder));
    layers_.resize(static_cast<size_t>(config_.n_layers));
    mla_.resize(layers_.size());
    for (int i = 0; i < config_.n_layers; ++i) {
      LES_RETURN_IF_ERROR(bind_norms(binder, i));
      LES_RETURN_IF_ERROR(bind_mla(binder, i, config_.d_model, spec_, &mla_[static_cast<size_t>(i)]));
      LES_RETURN_IF_ERROR(i < config_.n_leading_dense
                              ? bind_dense(binder, i)
                              : bind_experts(binder, i, Gating::kSoftmax, false, shared_width()));
    }
    return Status::ok();
  }

  Status prepare() override {
    for (MlaWeights& w : mla_) LES_RETURN_IF_ERROR(prepare_mla(spec_, &w));
    return Status::ok();
  }

  LayerStateSpec layer_state(int) const override { return mla_state(spec_); }

  size_t scratch_floats_per_token() const override {
    return ModelGraph::scratch_floats_per_token() + mla_scratch_floats(spec_);
  }

 protected:
  void mix(Step& step, int i, const float* h, float* out) override {
    mla(step, i, spec_, mla_[static_cast<size_t>(i)], h, out);
  }

 private:
  Status read_sizes(const GgufFile& file) {
    const KeyReader keys(file, config_.arch);
    spec_.n_heads = config_.n_heads[0];
    spec_.n_rot = config_.n_rot;
    spec_.eps = config_.norm_eps;
    spec_.rope = &rope_;
    LES_ASSIGN_OR_RETURN(spec_.kv_rank, keys.integer("attention.kv_lora_rank"));
    LES_ASSIGN_OR_RETURN(spec_.q_rank, keys.integer_or("attention.q_lora_rank", 0));
    // Files from before the divided form give the heads' own sizes as key and value length.
    LES_ASSIGN_OR_RETURN(const int dim_q, keys.integer_or("attention.key_length_mla", config_.dim_k));
    LES_ASSIGN_OR_RETURN(spec_.dim_v, keys.integer_or("attention.value_length_mla", config_.dim_v));
    spec_.dim_nope = dim_q - spec_.n_rot;
    if (spec_.n_heads < 1 || spec_.kv_rank < 1 || spec_.dim_v < 1 || spec_.n_rot < 2 || spec_.dim_nope < 1) {
      return make_error(Code::kCorrupt,
                        "%s: latent attention with %d heads of %d keys, %d of them turned, %d values and "
                        "rank %d: not possible",
                        file.path().c_str(), spec_.n_heads, dim_q, spec_.n_rot, spec_.dim_v, spec_.kv_rank);
    }
    if (spec_.kv_rank % 16 != 0) {  // values are the front of a cached row, which kernels read in whole vectors
      return make_error(Code::kUnsupported, "%s: attention.kv_lora_rank is %d; expected a multiple of 16",
                        file.path().c_str(), spec_.kv_rank);
    }
    for (int i = 0; i < config_.n_layers; ++i) {
      if (config_.n_heads[static_cast<size_t>(i)] != spec_.n_heads) {
        return make_error(Code::kUnsupported, "%s: layer %d has %d heads; expected %d as in layer 0",
                          file.path().c_str(), i, config_.n_heads[static_cast<size_t>(i)], spec_.n_heads);
      }
    }
    const RopeScaling& scaling = config_.rope_scaling;
    rope_ = make_rope(RopePairing::kAdjacent, spec_.n_rot, config_.rope_base, scaling, nullptr);
    spec_.scale = 1.0f / std::sqrt(static_cast<float>(dim_q));
    if (scaling.type == "yarn" && scaling.log_multiplier != 0) {
      // DeepSeek moves YaRN's magnitude from the turned part to all scores; the key holds a tenth of its mscale.
      const float magnitude = 1 + scaling.log_multiplier * std::log(std::max(1.0f, scaling.factor));
      rope_.magnitude = scaling.attn_factor;
      spec_.scale *= magnitude * magnitude;
    }
    return Status::ok();
  }

  MlaSpec spec_;
  std::vector<MlaWeights> mla_;
};

}  // namespace

std::unique_ptr<ModelGraph> make_deepseek2(const ModelConfig& config) { return std::make_unique<DeepSeek2>(config); }

}  // namespace les
