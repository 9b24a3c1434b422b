// Dense feed-forward networks: whole layers of dense models, leading dense layers, shared experts.
#pragma once

#include "model/ops.h"

namespace les {

struct FfnWeights {
  Matrix gate, up, down;       // gate empty: act(up x)
  Vector gate_bias, up_bias, down_bias;
};

// Binds blk.<layer>.ffn_{gate,up,down}<kind>; kind is "" or "_shexp". has_gate: the family's networks are gated.
Status bind_ffn(WeightBinder& binder, int layer, const char* kind, int d_model, int ff, bool has_gate, FfnWeights* w);

// y [n, d] = down(act(gate x) * up x) for x [n, d]
void ffn(Exec& exec, const FfnWeights& w, Act act, const float* x, int n, float* y);

// A shared expert: to += scale * ffn(x), times sigmoid(gate . x) for each token where there is a gate [d].
void add_shared_expert(Exec& exec, const FfnWeights& w, const Vector& gate, Act act, float scale, const float* x, int n,
                       float* to);

}  // namespace les
