// Instruction sets that the row kernels are compiled for.
#pragma once

#include <cstdint>

namespace trident {

// Each level contains the ones before it.
enum class IsaLevel : std::uint8_t {
  kBaseline,  // x86-64: SSE2
  kAvx2,      // AVX2, FMA and F16C
  kAvx512,    // AVX-512 F, BW, DQ and VL
};

constexpr const char* to_string(IsaLevel level) {
  return level == IsaLevel::kBaseline ? "baseline" : level == IsaLevel::kAvx2 ? "avx2" : "avx512";
}

}  // namespace trident
