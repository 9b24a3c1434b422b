// The pace of integer dot products whose operands are in registers: no product of matrices can be faster.
#pragma once

#include "kernels/matmul_column_inl.h"

namespace les {
namespace {

constexpr int kPeakRows = kLanes == 16 ? 3 : 2;  // with four columns: chains enough to hide the latency of one product
constexpr int kPeakCols = 4;

int64_t dot_peak(int64_t n_rounds, int32_t* checksum) {
  alignas(64) int8_t bytes[kPeakRows > kPeakCols ? kPeakRows * kStep : kPeakCols * kStep];
  for (size_t i = 0; i < sizeof(bytes); ++i) bytes[i] = static_cast<int8_t>(i % 100);
  B w[kPeakRows];
  B x[kPeakCols];
  for (int r = 0; r < kPeakRows; ++r) w[r] = b_load(bytes + r * kStep);
  for (int c = 0; c < kPeakCols; ++c) x[c] = b_load(bytes + c * kStep);
  DotSum sum[kPeakRows * kPeakCols] = {};
  for (int64_t i = 0; i < n_rounds; ++i) {
#pragma GCC unroll kUnroll
    for (int r = 0; r < kPeakRows; ++r) {
      hide(w[r]);
#pragma GCC unroll kUnroll
      for (int c = 0; c < kPeakCols; ++c) sum[r * kPeakCols + c] = dot_add(sum[r * kPeakCols + c], w[r], x[c]);
    }
  }
  uint32_t total = 0;
  for (const DotSum& s : sum) {
    uint32_t words[sizeof(DotSum) / sizeof(uint32_t)];
    std::memcpy(words, &s, sizeof(words));
    for (const uint32_t word : words) total += word;
  }
  *checksum = static_cast<int32_t>(total);
  constexpr int kProducts = kHasPairProduct ? 2 * kStep : kStep;  // two rows and columns of half the length
  return n_rounds * kPeakRows * kPeakCols * kProducts * 2;
}

}  // namespace
}  // namespace les
