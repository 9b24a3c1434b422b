// Chooses a kernel table by what the processor has and the user demands.
#include <cstring>

#include "cpu/features.h"
#include "kernels/kernels.h"
#include "kernels/tables.h"

namespace les {

namespace {

struct Candidate {
  const KernelTable* table;
  bool is_usable;
};

const KernelTable* choose(const char* wanted) {
  [[maybe_unused]] const CpuFeatures cpu = cpu_features();
  // Best first.
  const Candidate candidates[] = {
#if defined(__x86_64__)
      {&kAvx512VbmiKernels, cpu.avx512vbmi},
      {&kAvx512Kernels, cpu.avx512},
      {&kAvxVnniKernels, cpu.avxvnni},
      {&kAvx2Kernels, cpu.avx2},
#elif defined(__aarch64__)
      {&kNeonI8mmKernels, cpu.i8mm},
      {&kNeonDotprodKernels, cpu.dotprod},
      {&kNeonKernels, cpu.neon},
#endif
      {&kScalarKernels, true},
  };
  for (const Candidate& candidate : candidates) {
    if (!candidate.is_usable) continue;
    if (wanted == nullptr || std::strcmp(wanted, candidate.table->isa) == 0) return candidate.table;
  }
  return nullptr;
}

}  // namespace

const KernelTable* kernels() {
  static const KernelTable* const selected = choose(forced_isa());
  return selected;
}

const KernelTable* kernels_named(const char* isa) { return isa == nullptr ? nullptr : choose(isa); }

}  // namespace les
