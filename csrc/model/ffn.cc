#include "model/ffn.h"

namespace les {

Status bind_ffn(WeightBinder& binder, int layer, const char* kind, int d_model, int ff, bool has_gate, FfnWeights* w) {
  const auto name = [&](const char* part, const char* suffix) {
    return block_name(layer, (std::string("ffn_") + part + kind + suffix).c_str());
  };
  if (has_gate) {
    LES_RETURN_IF_ERROR(binder.matrix(name("gate", ".weight"), d_model, ff, &w->gate));
    LES_RETURN_IF_ERROR(binder.optional_vector(name("gate", ".bias"), ff, &w->gate_bias));
  }
  LES_RETURN_IF_ERROR(binder.matrix(name("up", ".weight"), d_model, ff, &w->up));
  LES_RETURN_IF_ERROR(binder.matrix(name("down", ".weight"), ff, d_model, &w->down));
  LES_RETURN_IF_ERROR(binder.optional_vector(name("up", ".bias"), ff, &w->up_bias));
  return binder.optional_vector(name("down", ".bias"), d_model, &w->down_bias);
}

void ffn(Exec& exec, const FfnWeights& w, Act act, const float* x, int n, float* y) {
  ScratchScope scope(*exec.scratch);
  const size_t size = static_cast<size_t>(n) * static_cast<size_t>(w.up.n_out);
  const Activations in = quantize(exec, x, n, w.up.n_in);
  auto* up = exec.scratch->alloc<float>(size);
  matmul(exec, w.up, w.up_bias, in, up);
  if (w.gate) {
    auto* gate = exec.scratch->alloc<float>(size);
    matmul(exec, w.gate, w.gate_bias, in, gate);
    glu(exec, act, gate, up, static_cast<int64_t>(size), up);
  } else {
    glu(exec, act, up, nullptr, static_cast<int64_t>(size), up);
  }
  matmul(exec, w.down, w.down_bias, quantize(exec, up, n, w.down.n_in), y);
}

void add_shared_expert(Exec& exec, const FfnWeights& w, const Vector& gate, Act act, float scale, const float* x, int n,
                       float* to) {
  ScratchScope scope(*exec.scratch);
  const int d = w.down.n_out;
  auto* y = exec.scratch->alloc<float>(static_cast<size_t>(n) * static_cast<size_t>(d));
  ffn(exec, w, act, x, n, y);
  for (int t = 0; t < n; ++t) {
    const int64_t at = static_cast<int64_t>(t) * d;
    const float opened =
        gate ? sigmoid(exec.kernels->dot(gate.data, x + static_cast<int64_t>(t) * gate.n, gate.n)) : 1.0f;
    exec.kernels->add_scaled(y + at, scale * opened, d, to + at);
  }
}

}  // namespace les
