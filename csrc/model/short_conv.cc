#include "model/short_conv.h"

#include <algorithm>

namespace les {

void causal_conv(Exec& exec, const float* x, int count, size_t row_stride, int width, const float* weights, int kernel,
                 const float* bias, float* history, float* y) {
  const int n_old = kernel - 1;
  exec.pool->parallel_for(width, 256, [&](int64_t begin, int64_t end, int) {
    // Input `back` tokens before token t, from the step or from the history.
    const auto input = [&](int t, int back, int64_t c) {
      const int at = t - back;
      return at >= 0 ? x[static_cast<size_t>(at) * row_stride + static_cast<size_t>(c)]
                     : history[static_cast<size_t>(n_old + at) * static_cast<size_t>(width) + static_cast<size_t>(c)];
    };
    if (y != nullptr) {
      for (int t = 0; t < count; ++t) {
        for (int64_t c = begin; c < end; ++c) {
          float sum = bias == nullptr ? 0.0f : bias[c];
          for (int j = 0; j < kernel; ++j) sum += weights[c * kernel + j] * input(t, kernel - 1 - j, c);
          y[static_cast<size_t>(t) * static_cast<size_t>(width) + static_cast<size_t>(c)] = sum;
        }
      }
    }
    // Oldest first: a row is read from its old place before that place is written.
    for (int j = 0; j < n_old; ++j) {
      float* row = history + static_cast<size_t>(j) * static_cast<size_t>(width);
      for (int64_t c = begin; c < end; ++c) row[c] = input(count, n_old - j, c);
    }
  });
}

}  // namespace les
