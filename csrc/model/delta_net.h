// Gated DeltaNet: linear attention with a short convolution in front and a decaying, error-correcting state
// (Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024), as Qwen3-Next and Qwen3.5 use it.
#pragma once

#include "model/ops.h"
#include "model/state.h"

namespace les {

struct Step;

// Which key head a value head works with: h mod n_k (tiled), or h / (n_v / n_k) (grouped).
enum class HeadOrder : int { kTiled, kGrouped };

struct DeltaNetSpec {
  int n_k_heads = 0, n_v_heads = 0;
  int dim = 0;               // of one head, keys and values alike
  int conv_kernel = 0;
  HeadOrder order = HeadOrder::kTiled;
  float eps = 1e-6f;

  int key_width() const { return n_k_heads * dim; }
  int value_width() const { return n_v_heads * dim; }
  int conv_width() const { return 2 * key_width() + value_width(); }  // channels [q | k | v]
};

struct DeltaNetWeights {
  Matrix qkv, gate, beta, alpha, out;
  Matrix beta_alpha;         // instead of beta and alpha: per key head [beta of its value heads | alpha of them]
  Vector conv;               // [conv_width, conv_kernel]
  Vector dt_bias, a;         // [n_v_heads]; a holds -exp(A_log)
  Vector norm;               // [dim]
};

Status bind_delta_net(WeightBinder& binder, int layer, int d_model, const DeltaNetSpec& spec, DeltaNetWeights* w);

LayerStateSpec delta_net_state(const DeltaNetSpec& spec);

// y [n, d_model] = mixer(x [n, d_model]); advances the layer's recurrent state by the step's tokens.
void delta_net(Step& step, int layer, const DeltaNetSpec& spec, const DeltaNetWeights& w, const float* x, float* y);

}  // namespace les
