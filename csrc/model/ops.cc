#include "model/ops.h"

#include <algorithm>
#include <cmath>

namespace les {

namespace {

constexpr int64_t kElementGrain = 4096;   // values of an elementwise loop that are worth a thread
constexpr int64_t kMinParallelMacs = 1 << 15;
constexpr int kRowGrain = 16;

}  // namespace

Activations quantize(Exec& exec, const float* x, int n_cols, int n_in) {
  Activations act{x, nullptr, nullptr, nullptr, static_cast<size_t>(n_in), n_in, n_cols};
  if (n_in % kActBlock != 0 || exec.use_float) return act;
  const size_t n_values = static_cast<size_t>(n_cols) * static_cast<size_t>(n_in);
  auto* q8 = exec.scratch->alloc<int8_t>(n_values);
  auto* scales = exec.scratch->alloc<float>(n_values / kActBlock);
  auto* sums = exec.scratch->alloc<float>(n_values / kActBlock);
  exec.pool->parallel_for(n_cols, std::max<int64_t>(1, kElementGrain / n_in), [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t block = c * n_in / kActBlock;
      exec.kernels->quantize_activations(x + c * n_in, n_in, q8 + c * n_in, scales + block, sums + block);
    }
  });
  act.q8 = q8;
  act.scale = scales;
  act.sum = sums;
  return act;
}

void matmul(Exec& exec, const Matrix& w, const Activations& x, float* y) {
  const auto type = static_cast<size_t>(w.type);
  const MatmulFn fn = exec.use_float ? exec.kernels->matmul_f32[type] : exec.kernels->matmul[type];
  const auto ldy = static_cast<size_t>(w.n_out);
  const int64_t macs_per_row = static_cast<int64_t>(w.n_in) * x.n_cols;
  const int64_t grain = std::max<int64_t>(kRowGrain, kMinParallelMacs / macs_per_row / kRowGrain * kRowGrain);
  exec.pool->parallel_for(w.n_out, grain, [&](int64_t begin, int64_t end, int) {
    fn(w.data + static_cast<size_t>(begin) * w.row_bytes, w.row_bytes, static_cast<int>(end - begin), x, y + begin,
       ldy);
  });
}

void matmul(Exec& exec, const Matrix& w, const Vector& bias, const Activations& x, float* y) {
  matmul(exec, w, x, y);
  add_bias(exec, bias, x.n_cols, y);
}

void rms_norm(Exec& exec, const float* x, const Vector& w, int n_rows, int n, float eps, float* y) {
  exec.pool->parallel_for(n_rows, std::max<int64_t>(1, kElementGrain / n), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) exec.kernels->rms_norm(x + r * n, w.data, n, eps, y + r * n);
  });
}

void add_bias(Exec& exec, const Vector& bias, int n_rows, float* y) {
  if (!bias) return;
  for (int r = 0; r < n_rows; ++r) exec.kernels->add(bias.data, bias.n, y + static_cast<size_t>(r) * bias.n);
}

namespace {

template <typename Fn>
void over_elements(Exec& exec, int64_t count, Fn fn) {
  exec.pool->parallel_for(count, kElementGrain * 4,
                          [&](int64_t begin, int64_t end, int) { fn(begin, static_cast<int>(end - begin)); });
}

}  // namespace

void add_scaled(Exec& exec, const float* x, float a, int64_t count, float* y) {
  over_elements(exec, count, [&](int64_t at, int n) {
    if (a == 1) {
      exec.kernels->add(x + at, n, y + at);
    } else {
      exec.kernels->add_scaled(x + at, a, n, y + at);
    }
  });
}

void scale(Exec& exec, float a, int64_t count, float* y) {
  over_elements(exec, count, [&](int64_t at, int n) {
    for (int i = 0; i < n; ++i) y[at + i] *= a;
  });
}

void softcap(Exec& exec, float cap, int64_t count, float* y) {
  over_elements(exec, count, [&](int64_t at, int n) {
    for (int i = 0; i < n; ++i) y[at + i] = cap * std::tanh(y[at + i] / cap);
  });
}

void glu(Exec& exec, Act act, const float* gate, const float* up, int64_t count, float* y) {
  over_elements(exec, count, [&](int64_t at, int n) {
    exec.kernels->glu(act, gate + at, up == nullptr ? nullptr : up + at, n, y + at);
  });
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

}  // namespace les
