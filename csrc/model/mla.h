// Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024) in its absorbed form: the cache holds one compressed
// row per token, [latent | turned key part], and every head's query is taken into the latent space instead.
#pragma once

#include "base/arena.h"
#include "model/ops.h"
#include "model/rope.h"
#include "model/state.h"

namespace les {

struct Step;

struct MlaSpec {
  int n_heads = 0;
  int kv_rank = 0;             // width of the latent
  int q_rank = 0;              // 0: queries are not compressed
  int dim_nope = 0, n_rot = 0; // of a head's query: [plain | turned]
  int dim_v = 0;               // of a head's output
  float scale = 0;             // on scores
  float eps = 1e-6f;
  const Rope* rope = nullptr;

  int dim_q() const { return dim_nope + n_rot; }
  int cache_row() const { return kv_rank + n_rot; }
};

// One matrix per head, head_bytes apart in a tensor.
struct HeadMatrices {
  QType type = QType::kF32;
  const uint8_t* data = nullptr;
  int n_in = 0, n_out = 0;
  size_t row_bytes = 0, head_bytes = 0;
};

struct MlaWeights {
  Matrix q;                    // [n_heads * dim_q] of x, or of the compressed query
  Matrix q_a, kv_a, out;
  Vector q_a_norm, kv_a_norm;
  Matrix k_b_all, v_b_all;     // the tensors of the divided form, all heads below one another
  Matrix kv_b;                 // instead of both: per head, dim_nope rows of keys and dim_v of values
  HeadMatrices k_b;            // dim_nope -> kv_rank; filled by prepare_mla
  HeadMatrices v_b;            // kv_rank -> dim_v
  Buffer transposed;           // k_b made from kv_b, in float
};

Status bind_mla(WeightBinder& binder, int layer, int d_model, const MlaSpec& spec, MlaWeights* w);
// Once the trunk is loaded.
Status prepare_mla(const MlaSpec& spec, MlaWeights* w);

LayerStateSpec mla_state(const MlaSpec& spec);
// Floats of scratch that one token needs.
size_t mla_scratch_floats(const MlaSpec& spec);

// y [n, d_model] = attention(x [n, d_model]); appends the step's compressed rows to the layer's cache.
void mla(Step& step, int layer, const MlaSpec& spec, const MlaWeights& w, const float* x, float* y);

}  // namespace les
