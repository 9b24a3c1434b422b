// Mamba-2: a short convolution in front of a state that decays by one factor per head and token (Dao & Gu,
// "Transformers are SSMs", 2024), as Granite 4 and Nemotron-H use it.
#pragma once

#include "model/ops.h"
#include "model/state.h"

namespace les {

struct Step;
class KeyReader;

struct Mamba2Spec {
  int n_heads = 0, head_dim = 0;
  int n_groups = 0;          // heads of a group share what they write with and read by
  int state_dim = 0;
  int conv_kernel = 0;
  float eps = 1e-6f;

  int inner() const { return n_heads * head_dim; }
  int conv_width() const { return inner() + 2 * n_groups * state_dim; }  // channels [x | B | C]
  int in_width() const { return inner() + conv_width() + n_heads; }      // projection [z | x | B | C | dt]
};

struct Mamba2Weights {
  Matrix in, out;
  Vector conv, conv_bias;    // [conv_width, conv_kernel], [conv_width]
  Vector dt_bias, a, d;      // [n_heads]; a holds -exp(A_log)
  Vector norm;               // [inner], normalised group by group
};

// Reads and checks <arch>.ssm.*.
Result<Mamba2Spec> read_mamba2(const KeyReader& keys, float norm_eps);

Status bind_mamba2(WeightBinder& binder, int layer, int d_model, const Mamba2Spec& spec, Mamba2Weights* w);

LayerStateSpec mamba2_state(const Mamba2Spec& spec);
// Floats of scratch that one token needs, the layer's own input and output not counted.
size_t mamba2_scratch_floats(const Mamba2Spec& spec);

// y [n, d_model] = mixer(x [n, d_model]); advances the layer's recurrent state by the step's tokens.
void mamba2(Step& step, int layer, const Mamba2Spec& spec, const Mamba2Weights& w, const float* x, float* y);

}  // namespace les
