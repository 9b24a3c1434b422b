// Speed of the products of matrices, beside what the machine gives: reading from memory, dot products in registers.
//
// Every figure is the best of several rounds, as a busy neighbour only ever slows. Work is handed out by a thread pool
// in the ranges that a model's products get. Thread-safety: one measurement at a time, or they slow each other.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "kernels/kernels.h"

namespace les {

struct BenchShape {
  int n_in;
  int n_out;
};

struct BenchOptions {
  const KernelTable* table = nullptr;
  int n_threads = 1;
  bool use_float = false;                // activations in float instead of 8 bits
  size_t memory_bytes = 256ull << 20;    // matrices are read from so much memory: far more than the caches
  int n_rounds = 5;
};

struct StreamSpeed {
  double weight_bytes_per_s;
  double read_bytes_per_s;  // plain reading, measured in between
};

// One column times matrices of the type and shape, one after the other through memory_bytes.
Result<StreamSpeed> bench_decode(const BenchOptions& options, QType type, BenchShape shape);

// Operations (two a weight and column) per second of n_cols columns times one matrix, which caches may hold.
Result<double> bench_prefill(const BenchOptions& options, QType type, BenchShape shape, int n_cols);

// Operations per second of integer dot products in registers, on all threads.
Result<double> bench_dot_peak(const BenchOptions& options);

}  // namespace les
