#include "cpu/features.h"

#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace les {

namespace {

#if defined(__x86_64__)

constexpr bool bit(uint32_t word, int index) { return (word >> index & 1) != 0; }

uint64_t read_xcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

CpuFeatures detect() {
  CpuFeatures found;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return found;
  const bool has_osxsave = bit(c, 27);
  const bool has_avx_fma_f16c = bit(c, 28) && bit(c, 12) && bit(c, 29);
  if (!has_osxsave || !has_avx_fma_f16c) return found;

  constexpr uint64_t kYmmState = 0x6;   // SSE and AVX registers
  constexpr uint64_t kZmmState = 0xe6;  // those, opmasks and both halves of ZMM
  const uint64_t xcr0 = read_xcr0();
  if ((xcr0 & kYmmState) != kYmmState) return found;

  uint32_t b7 = 0, c7 = 0, d7 = 0, a7_1 = 0, b7_1 = 0, c7_1 = 0, d7_1 = 0;
  if (__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) == 0) return found;
  const uint32_t max_subleaf = a;
  if (max_subleaf >= 1) __get_cpuid_count(7, 1, &a7_1, &b7_1, &c7_1, &d7_1);

  found.avx2 = bit(b7, 5);
  found.avxvnni = found.avx2 && bit(a7_1, 4);
  const bool has_avx512 = bit(b7, 16) && bit(b7, 17) && bit(b7, 30) && bit(b7, 31) && bit(c7, 11);
  found.avx512 = found.avx2 && has_avx512 && (xcr0 & kZmmState) == kZmmState;
  found.avx512vbmi = found.avx512 && bit(c7, 1) && bit(c7, 8);
  return found;
}

#elif defined(__aarch64__) && defined(__APPLE__)

bool has_feature(const char* name) {
  int value = 0;
  size_t size = sizeof(value);
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

CpuFeatures detect() {
  CpuFeatures found;
  found.neon = true;
  found.dotprod = has_feature("hw.optional.arm.FEAT_DotProd");
  found.i8mm = found.dotprod && has_feature("hw.optional.arm.FEAT_I8MM");
  return found;
}

#elif defined(__aarch64__)

CpuFeatures detect() {
  constexpr unsigned long kHwcapAsimdDp = 1ul << 20;
  constexpr unsigned long kHwcap2I8mm = 1ul << 13;
  CpuFeatures found;
  found.neon = true;
  found.dotprod = (getauxval(AT_HWCAP) & kHwcapAsimdDp) != 0;
  found.i8mm = found.dotprod && (getauxval(AT_HWCAP2) & kHwcap2I8mm) != 0;
  return found;
}

#else

CpuFeatures detect() { return {}; }

#endif

}  // namespace

CpuFeatures cpu_features() { return detect(); }

const char* forced_isa() {
  const char* name = std::getenv("LES_FORCE_ISA");
  return name != nullptr && name[0] != '\0' ? name : nullptr;
}

}  // namespace les
