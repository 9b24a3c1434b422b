// What the processor and the operating system allow. The only place that reads CPUID, XCR0, HWCAP and LES_FORCE_ISA.
// Thread-safety: pure queries.
#pragma once

namespace les {

// A flag is set when the instructions exist and the system saves the registers they use.
struct CpuFeatures {
  bool avx2 = false;        // AVX2, FMA, F16C
  bool avxvnni = false;     // avx2 and the VEX-encoded VNNI
  bool avx512 = false;      // avx2 and AVX-512 F, BW, DQ, VL and VNNI
  bool avx512vbmi = false;  // avx512, VBMI and GFNI
  bool neon = false;        // armv8-a, always there on aarch64
  bool dotprod = false;     // SDOT
  bool i8mm = false;        // dotprod and SMMLA
};

CpuFeatures cpu_features();

// The value of LES_FORCE_ISA; null when unset or empty.
const char* forced_isa();

}  // namespace les
