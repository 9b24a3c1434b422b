// The scalar decoder of each quant type: the definition that every kernel is tested against.
#pragma once

#include <cstdint>

#include "quant/qtype.h"

namespace les {

// One row of n weights, whole blocks, from its stored bytes (no alignment needed) into floats.
using DequantizeFn = void (*)(const uint8_t* row, int64_t n, float* out);

// Null for types that are no weights.
DequantizeFn dequantizer(QType type);

}  // namespace les
