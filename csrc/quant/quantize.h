// Floats to the stored bytes of a quant type. Pure functions: threads may share the rows of a matrix between calls.
// The same bytes on every processor: no contraction, no libm, sums in four fixed lanes.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "quant/qtype.h"

namespace les {

// False for types that are read but not written.
bool can_quantize(QType type);

// x: n_rows x n_in. out: n_rows x row_bytes(type, n_in). importance [n_in] or null weighs the squared error by column:
// finite, not negative; only ratios count, and a column never counts less than a millionth of the heaviest.
// F32, F16 and BF16 keep NaN and infinity, and F16 makes infinity of what it cannot hold. In the other types NaN and
// magnitudes below 2^-40 become 0, larger ones than 2^30 count as 2^30, and no scale is infinite. A block of zeros
// stays one.
Status quantize_rows(QType type, const float* x, int64_t n_rows, int64_t n_in, const float* importance, uint8_t* out);

}  // namespace les
