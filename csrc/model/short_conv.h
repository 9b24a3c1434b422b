// Depth-wise causal convolution over tokens, with the last kernel - 1 inputs as state.
#pragma once

#include "model/exec.h"

namespace les {

// x: `count` rows, row_stride floats apart, of which the first `width` are the channels. weights [width, kernel], the
// newest input last; bias [width] or null. history [kernel - 1, width], oldest first, is updated.
// y [count, width]; null: only the history moves on.
void causal_conv(Exec& exec, const float* x, int count, size_t row_stride, int width, const float* weights, int kernel,
                 const float* bias, float* history, float* y);

}  // namespace les
