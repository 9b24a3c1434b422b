// Compares a kernel table with the scalar one on small inputs, in a few milliseconds.
// Thread-safety: reentrant.
#pragma once

#include "base/status.h"
#include "kernels/kernels.h"

namespace les {

// kInternal, naming the instruction set and the kernel, when a result is outside its bound.
Status self_test(const KernelTable& table);

}  // namespace les
