// The tables that are compiled in: one symbol for each isa_*.cc.
#pragma once

#include "kernels/kernels.h"

namespace les {

extern const KernelTable kScalarKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvxVnniKernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512VbmiKernels;
#elif defined(__aarch64__)
extern const KernelTable kNeonKernels;
extern const KernelTable kNeonDotprodKernels;
extern const KernelTable kNeonI8mmKernels;
#endif

}  // namespace les
