// The kernel table: every loop that touches weights or activations, once per instruction set.
//
// Kernels never allocate, lock, read files or know threads: callers split the work by rows (or by tokens and heads).
// 1. y of one row and one column depends on that row and column only: not on n_rows, n_cols, or how rows were split.
// 2. Columns 1..N give the same bits as the same columns one at a time.
// 3. Rows of weights need no alignment; activations and outputs are aligned to 4 bytes. Nothing is read or written
//    outside the stated ranges.
// Thread-safety: the table is immutable once selected; all functions are reentrant.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/qtype.h"

namespace les {

constexpr int kActBlock = 32;  // activations share one scale per 32 values

// n_cols activation vectors of n_in values: in float, and (where n_in is a multiple of kActBlock and the weight type
// has an integer dot product) in 8 bits. Column c starts c * ld elements on in f32 and q8, c * (ld / kActBlock) in the
// others; ld is a multiple of kActBlock.
struct Activations {
  const float* f32;
  const int8_t* q8;    // null: integer kernels may not be called
  const float* scale;  // value ~ scale[block] * q8
  const float* sum;    // scale[block] * (sum of the block's q8), for types with an offset
  size_t ld;
  int n_in;
  int n_cols;
};

// y[c * ldy + r] = dot(row r of w, column c of x), r in [0, n_rows). Rows are row_bytes apart.
using MatmulFn = void (*)(const uint8_t* w, size_t row_bytes, int n_rows, const Activations& x, float* y, size_t ldy);

enum class KvType : int { kF32 = 0, kF16 = 1, kQ8_0 = 2 };

// Attention of n_heads query heads that share one key/value head, for one token.
struct AttentionArgs {
  const float* q;  // [n_heads, q_stride], first dim_k values of each
  size_t q_stride;
  int n_heads;
  int dim_k, dim_v;
  const uint8_t* k;  // key of position p at k + p * k_stride_bytes
  const uint8_t* v;
  size_t k_stride_bytes, v_stride_bytes;
  KvType k_type, v_type;
  int begin, end;      // positions attended to: [begin, end)
  float scale;         // on the dot product
  float softcap;       // 0: none; else score = softcap * tanh(score / softcap)
  const float* sinks;  // [n_heads] extra logits that take part in the softmax only, or null
  float* scores;       // scratch [n_heads, end - begin]
  float* out;          // [n_heads, out_stride]
  size_t out_stride;
};

enum class Act : int { kSilu = 0, kGelu, kGeluTanh, kRelu, kReluSquared, kSwigluOai };

struct KernelTable {
  const char* isa;
  // Integer dot products on x.q8; for F32, F16, BF16 products with x.f32. Null for a type that is no weight.
  MatmulFn matmul[kQTypeSlots];
  // The same products with the weights turned into float and x.f32: slower, without rounding of activations.
  MatmulFn matmul_f32[kQTypeSlots];
  // n is a multiple of kActBlock. scale = max|x| / 127 of the block, q8 = nearest even of x / scale.
  void (*quantize_activations)(const float* x, int n, int8_t* q8, float* scale, float* sum);
  void (*attention)(const AttentionArgs& args);
  void (*store_kv)(const float* x, int n, KvType type, uint8_t* out);  // n values into a cache row
  void (*load_kv)(const uint8_t* in, int n, KvType type, float* x);
  // y = x / sqrt(mean(x^2) + eps) * w; w null: no weight. y may be x.
  void (*rms_norm)(const float* x, const float* w, int n, float eps, float* y);
  // y[i] = act(gate[i]) * up[i]; gate may be y. kSwigluOai: clamped at 7, alpha 1.702, (up + 1). up null: act(gate).
  void (*glu)(Act act, const float* gate, const float* up, int n, float* y);
  void (*add)(const float* x, int n, float* y);                  // y += x
  void (*add_scaled)(const float* x, float a, int n, float* y);  // y += a * x
  void (*softmax)(float* x, int n);
  float (*dot)(const float* a, const float* b, int n);
  // One step of the gated delta rule for one head: S is [n_v, n_k] row by value index, updated in place.
  // S *= decay; d = beta * (v - S k); S += d k^T; out = S q.
  void (*delta_rule)(float* s, const float* q, const float* k, const float* v, float decay, float beta, int n_k,
                     int n_v, float* out);
  // The same without correction: S *= decay; S += factor v k^T; out = S q.
  void (*decay_rule)(float* s, const float* q, const float* k, const float* v, float decay, float factor, int n_k,
                     int n_v, float* out);
  // n_rounds of integer dot products that touch no memory, for measuring; returns the operations (two a product) done.
  int64_t (*dot_peak)(int64_t n_rounds, int32_t* checksum);
};

// The table in use: the best the processor and LES_FORCE_ISA allow. Null with an unknown or unusable forced name.
const KernelTable* kernels();

// By name ("scalar", "avx2", "avxvnni", "avx512", "avx512vbmi", "neon", ...); null when not compiled in or not usable
// here.
const KernelTable* kernels_named(const char* isa);

}  // namespace les
