// This processor's instruction sets, by CPUID (and by the registers that the operating system saves on a context switch).
#pragma once

#include "device/row_kernels/isa_level.h"

namespace trident {

struct CpuFeatures {
  IsaLevel level = IsaLevel::kBaseline;
  bool avx512_bf16 = false;
  bool amx_bf16 = false;
};

CpuFeatures detect_cpu_features();

}  // namespace trident
