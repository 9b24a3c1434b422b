// Puts the loops together into a table. Included last by each isa_*.cc.
#pragma once

#include "kernels/attention_inl.h"
#include "kernels/elementwise_inl.h"
#include "kernels/glu_inl.h"
#include "kernels/matmul_float_inl.h"
#include "kernels/matmul_inl.h"
#include "kernels/peak_inl.h"
#include "kernels/recurrent_inl.h"

namespace les {
namespace {

template <typename T>
constexpr void set_quantized(KernelTable& table, QType type) {
  table.matmul[static_cast<size_t>(type)] = matmul<T>;
  table.matmul_f32[static_cast<size_t>(type)] = matmul_dequantized<T>;
}

template <typename L>
constexpr void set_float(KernelTable& table, QType type) {
  table.matmul[static_cast<size_t>(type)] = matmul_float<L>;
  table.matmul_f32[static_cast<size_t>(type)] = matmul_float<L>;
}

// Constant-evaluated: a table costs nothing at start and runs no code an old processor lacks.
template <typename Types>
constexpr KernelTable make_table(const char* isa) {
  KernelTable table = {};
  table.isa = isa;
  set_float<FloatF32>(table, QType::kF32);
  set_float<FloatF16>(table, QType::kF16);
  set_float<FloatBF16>(table, QType::kBF16);
  set_quantized<typename Types::Q8_0>(table, QType::kQ8_0);
  set_quantized<typename Types::Q4_0>(table, QType::kQ4_0);
  set_quantized<typename Types::Q4_1>(table, QType::kQ4_1);
  set_quantized<typename Types::Q5_0>(table, QType::kQ5_0);
  set_quantized<typename Types::Q5_1>(table, QType::kQ5_1);
  set_quantized<typename Types::Q2_K>(table, QType::kQ2_K);
  set_quantized<typename Types::Q3_K>(table, QType::kQ3_K);
  set_quantized<typename Types::Q4_K>(table, QType::kQ4_K);
  set_quantized<typename Types::Q5_K>(table, QType::kQ5_K);
  set_quantized<typename Types::Q6_K>(table, QType::kQ6_K);
  set_quantized<typename Types::IQ4_NL>(table, QType::kIQ4_NL);
  set_quantized<typename Types::IQ4_XS>(table, QType::kIQ4_XS);
  set_quantized<typename Types::MXFP4>(table, QType::kMXFP4);
  set_quantized<typename Types::NVFP4>(table, QType::kNVFP4);
  set_quantized<typename Types::TQ1_0>(table, QType::kTQ1_0);
  set_quantized<typename Types::TQ2_0>(table, QType::kTQ2_0);
  set_quantized<typename Types::IQ2_XXS>(table, QType::kIQ2_XXS);
  set_quantized<typename Types::IQ2_XS>(table, QType::kIQ2_XS);
  set_quantized<typename Types::IQ2_S>(table, QType::kIQ2_S);
  set_quantized<typename Types::IQ3_XXS>(table, QType::kIQ3_XXS);
  set_quantized<typename Types::IQ3_S>(table, QType::kIQ3_S);
  set_quantized<typename Types::IQ1_S>(table, QType::kIQ1_S);
  set_quantized<typename Types::IQ1_M>(table, QType::kIQ1_M);
  table.quantize_activations = quantize_activations;
  table.attention = attention;
  table.store_kv = store_kv;
  table.load_kv = load_kv;
  table.rms_norm = rms_norm;
  table.glu = glu;
  table.add = add;
  table.add_scaled = add_scaled;
  table.softmax = softmax;
  table.dot = dot;
  table.delta_rule = recur<DeltaRule>;
  table.decay_rule = recur<DecayRule>;
  table.dot_peak = dot_peak;
  return table;
}

}  // namespace
}  // namespace les
