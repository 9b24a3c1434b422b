// clang-format off: the byte dot product and the vector type come first
#include <arm_neon.h>

namespace les {
namespace {

// acc + 16 products of signed bytes, in four lanes. Two are added in 16 bits: |a| <= 128 and |b| <= 127 fit.
inline int32x4_t byte_dot(int32x4_t acc, int8x16_t a, int8x16_t b) {
  const int16x8_t pairs = vmlal_high_s8(vmull_s8(vget_low_s8(a), vget_low_s8(b)), a, b);
  return vpadalq_s16(acc, pairs);
}

}  // namespace
}  // namespace les

#include "kernels/simd_neon.h"
#include "kernels/math_inl.h"
#include "kernels/unpack_iq_neon.h"
#include "kernels/table_inl.h"
#include "kernels/tables.h"
// clang-format on

namespace les {

constinit const KernelTable kNeonKernels = make_table<NeonTypes>("neon");

}  // namespace les
