#include "device/cpu/cpu_features.h"

#include <cpuid.h>

namespace trident {

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
  // The compiler's tests look at XCR0 too: a feature that the system does not save counts as absent.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  features.level = avx512 ? IsaLevel::kAvx512 : avx2 ? IsaLevel::kAvx2 : IsaLevel::kBaseline;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (avx512 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) features.avx512_bf16 = (eax >> 5 & 1u) != 0;
  if (avx512 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) features.amx_bf16 = (edx >> 22 & 1u) != 0;
  return features;
}

}  // namespace trident
