// clang-format off: the vector type comes first
#include "kernels/simd_avx512.h"
#include "kernels/math_inl.h"
#include "kernels/matmul_unit_inl.h"
#include "kernels/unpack_scalar.h"
#include "kernels/unpack_iq_avx512.h"
#include "kernels/table_inl.h"
#include "kernels/tables.h"
// clang-format on

namespace les {

constinit const KernelTable kAvx512Kernels = make_table<Avx512Types>("avx512");

}  // namespace les
