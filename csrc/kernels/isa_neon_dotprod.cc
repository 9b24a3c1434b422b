// clang-format off: the byte dot product and the vector type come first
#include <arm_neon.h>

namespace les {
namespace {

constexpr bool kHasPairProduct = false;

// acc + 16 products of signed bytes, in four lanes.
inline int32x4_t byte_dot(int32x4_t acc, int8x16_t a, int8x16_t b) { return vdotq_s32(acc, a, b); }

// The instruction with the most products, for measuring.
inline int32x4_t peak_dot(int32x4_t acc, int8x16_t a, int8x16_t b) { return byte_dot(acc, a, b); }

}  // namespace
}  // namespace les

#include "kernels/simd_neon.h"
#include "kernels/math_inl.h"
#include "kernels/matmul_neon.h"
#include "kernels/unpack_iq_neon.h"
#include "kernels/table_inl.h"
#include "kernels/tables.h"
// clang-format on

namespace les {

constinit const KernelTable kNeonDotprodKernels = make_table<NeonTypes>("neon_dotprod");

}  // namespace les
