// clang-format off: the byte dot product and the vector type come first
#include <immintrin.h>

namespace les {
namespace {

// acc + unsigned a times signed b, four neighbours added.
inline __m256i byte_dot(__m256i acc, __m256i a, __m256i b) {
  return _mm256_dpbusd_avx_epi32(acc, a, b);
}

}  // namespace
}  // namespace les

#include "kernels/simd_avx2.h"
#include "kernels/math_inl.h"
#include "kernels/matmul_unit_inl.h"
#include "kernels/unpack_scalar.h"
#include "kernels/unpack_iq_avx2.h"
#include "kernels/table_inl.h"
#include "kernels/tables.h"
// clang-format on

namespace les {

constinit const KernelTable kAvxVnniKernels = make_table<Avx2Types>("avxvnni");

}  // namespace les
