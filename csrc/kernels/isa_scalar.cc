// clang-format off: the vector type comes first
#include "kernels/simd_scalar.h"
#include "kernels/peak_scalar.h"
#include "kernels/math_inl.h"
#include "kernels/matmul_unit_inl.h"
#include "kernels/unpack_scalar.h"
#include "kernels/table_inl.h"
#include "kernels/tables.h"
// clang-format on

namespace les {

constinit const KernelTable kScalarKernels = make_table<PortableTypes>("scalar");

}  // namespace les
