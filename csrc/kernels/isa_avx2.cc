// clang-format off: the byte dot product and the vector type come first
#include <immintrin.h>

namespace les {
namespace {

// acc + unsigned a times signed b, four neighbours added. Pairs are added in 16 bits: a <= 128 and |b| <= 127 fit.
inline __m256i byte_dot(__m256i acc, __m256i a, __m256i b) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
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

constinit const KernelTable kAvx2Kernels = make_table<Avx2Types>("avx2");

}  // namespace les
