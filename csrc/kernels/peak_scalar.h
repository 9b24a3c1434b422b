// What peak_inl.h needs, in plain C++.
#pragma once

#include "kernels/simd_scalar.h"

namespace les {
namespace {

// Sums of products and nothing else, to measure what registers allow; they wrap around.
using DotSum = I;
inline DotSum dot_add(DotSum sum, B w, B x) {
  const I dot = dot_lanes(w, x);
  for (int i = 0; i < kLanes; ++i) {
    sum.v[i] = static_cast<int32_t>(static_cast<uint32_t>(sum.v[i]) + static_cast<uint32_t>(dot.v[i]));
  }
  return sum;
}
// Makes the compiler think that b changes.
inline void hide(B& b) { __asm__ volatile("" : "+m"(b)); }

}  // namespace
}  // namespace les
