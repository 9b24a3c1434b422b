// The decoder layer that most families share: norm, attention, residual; norm, network or experts, residual. A family
// of this kind says in bind() what its layers consist of; one whose layers are built otherwise derives from ModelGraph.
#pragma once

#include <vector>

#include "model/attention.h"
#include "model/ffn.h"
#include "model/graph.h"

namespace les {

struct DecoderLayer {
  Vector attn_norm, ffn_norm;
  Vector attn_norm_bias, ffn_norm_bias;
  AttentionSpec attn_spec;
  AttentionWeights attn;
  bool has_experts = false;
  MoeSpec moe;
  FfnWeights ffn;  // the dense network, or the shared expert; empty: none
  Vector shared_gate;  // sigmoid gate of the shared expert
};

class Decoder : public ModelGraph {
 public:
  using ModelGraph::ModelGraph;

  LayerStateSpec layer_state(int layer) const override;
  const MoeSpec* moe_spec(int layer) const override;

 protected:
  Status run_layer(Step& step, int layer, float* x) override;
  // out [n, d_model] = what mixes the tokens of h [n, d_model] in this layer: attention, unless a family says
  // otherwise.
  virtual void mix(Step& step, int layer, const float* h, float* out);
  void after_embedding(Step& step, float* x) override;
  void run_head(Step& step, const float* x, int n, float* logits) override;

  // What families' bind() is made of. base_attention: heads, sizes and norm epsilon of the layer as the config has
  // them.
  AttentionSpec base_attention(int layer) const;
  // blk.<layer>.attn_norm and the norm before the network.
  Status bind_norms(WeightBinder& binder, int layer, const char* ffn_norm = "ffn_norm");
  // The norms, and the attention that layer.attn_spec describes.
  Status bind_attention_block(WeightBinder& binder, int layer, const char* ffn_norm = "ffn_norm");
  Status bind_dense(WeightBinder& binder, int layer);
  // Routed experts, and a shared expert of width shared_ff unless that is 0.
  Status bind_experts(WeightBinder& binder, int layer, Gating default_gating, bool default_norm, int shared_ff);
  // Width of the shared expert: as the file says, or n_shared experts side by side.
  int shared_width() const;

  std::vector<DecoderLayer> layers_;
  Rope rope_;
  Act act_ = Act::kSilu;
  float embedding_scale_ = 1, residual_scale_ = 1, logit_scale_ = 1;
};

}  // namespace les
