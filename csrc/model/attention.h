// Grouped-query attention over the KV cache, with what families add to it: biases, head norms, an output gate, sinks,
// windows, soft-capping, partial or no rotary encoding.
#pragma once

#include "model/ops.h"
#include "model/rope.h"
#include "model/state.h"

namespace les {

struct Step;

enum class QkNorm : int { kNone, kPerHead, kFull };

struct AttentionSpec {
  int n_heads = 0, n_kv_heads = 0;
  int dim_k = 0, dim_v = 0;
  float scale = 0;               // on scores; 0: 1 / sqrt(dim_k)
  float eps = 1e-6f;             // of the query and key norms
  QkNorm qk_norm = QkNorm::kNone;
  bool norm_after_rope = false;
  bool is_gated = false;         // attn_q holds [query | gate] per head; out *= sigmoid(gate)
  bool v_is_k = false;           // no value projection: values are the unturned keys
  bool norm_v = false;           // values are RMS-normalised without a weight
  bool is_causal = true;         // false: all tokens of a step see each other
  int window = 0;                // positions visible, the own one included; 0: all
  float softcap = 0;
  const Rope* rope = nullptr;    // null: no position encoding in this layer
};

struct AttentionWeights {
  Matrix q, k, v, out;
  Matrix qkv;                    // instead of q, k and v: rows of query, key, value
  Vector q_bias, k_bias, v_bias, out_bias, qkv_bias;
  Vector q_norm, k_norm, sinks;
};

// Binds blk.<layer>.attn_{q,k,v,output,...}; what is optional in GGUF is bound if the file has it.
Status bind_attention(WeightBinder& binder, int layer, int d_model, const AttentionSpec& spec, AttentionWeights* w);

// y [n, d_model] = attention(x [n, d_model]); appends the step's keys and values to the layer's cache.
void attention(Step& step, int layer, const AttentionSpec& spec, const AttentionWeights& w, const float* x, float* y);

// The middle part, for families that make queries, keys and values in their own way: q [n, n_heads, dim_k],
// k [n, n_kv_heads, dim_k], v [n, n_kv_heads, dim_v], all final; out [n, n_heads, dim_v].
void cached_attention(Step& step, int layer, const AttentionSpec& spec, const float* sinks, const float* q,
                      const float* k, const float* v, float* out);

// The step's keys and values into the layer's cache, and nothing else.
void store_keys_and_values(Step& step, int layer, const AttentionSpec& spec, const float* k, const float* v);

// Turns every head of x [n, n_heads, dim] by its token's position; the first `offset` values of a head stay.
void rope_heads(Step& step, const Rope& rope, int n_heads, int dim, int offset, float* x);

}  // namespace les
