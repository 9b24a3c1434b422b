// The operations that every family is made of, over n tokens at once and spread over the threads.
// Shapes in comments are [rows, columns], row by row; n is the number of tokens in the step.
#pragma once

#include "model/exec.h"
#include "model/weights.h"

namespace les {

// Activations ready for matmul: x [n_cols, n_in] kept as it is, and rounded to 8 bits where the row length allows.
// Lives in scratch until the enclosing scope ends.
Activations quantize(Exec& exec, const float* x, int n_cols, int n_in);

// y [n_cols, w.n_out] = x w^T, then + bias where there is one.
void matmul(Exec& exec, const Matrix& w, const Activations& x, float* y);
void matmul(Exec& exec, const Matrix& w, const Vector& bias, const Activations& x, float* y);

// y = rms_norm(x) * w over rows of n; y may be x. Empty w: no weight.
void rms_norm(Exec& exec, const float* x, const Vector& w, int n_rows, int n, float eps, float* y);

// y [n_rows, n] += bias [n]
void add_bias(Exec& exec, const Vector& bias, int n_rows, float* y);
// y += a * x over count values
void add_scaled(Exec& exec, const float* x, float a, int64_t count, float* y);
void scale(Exec& exec, float a, int64_t count, float* y);
// y = cap * tanh(y / cap)
void softcap(Exec& exec, float cap, int64_t count, float* y);
// y = act(gate) * up over count values; up may be null
void glu(Exec& exec, Act act, const float* gate, const float* up, int64_t count, float* y);

float sigmoid(float x);
float softplus(float x);

}  // namespace les
