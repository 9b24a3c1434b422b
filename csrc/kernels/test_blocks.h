// Plausible random blocks of every quantised type, for the self-test, the tests and the benchmark of the kernels.
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/qtype.h"

namespace les {

// The quantised types that have kernels.
struct TestType {
  QType type;
  int block_elements;
  int block_bytes;
  int halves[2];  // offsets of 16-bit float scales in a block, -1: none
};

const TestType* test_types(size_t* count);

// A sequence that is the same everywhere.
struct TestRandom {
  uint64_t state;
  uint32_t bits();
  float uniform(float low, float high);
};

// Any bytes, with scales of a moderate size.
void fill_test_blocks(const TestType& type, uint8_t* out, size_t n_blocks, TestRandom& random);

}  // namespace les
