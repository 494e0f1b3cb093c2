// This processor's instruction sets, by CPUID (and by the registers that the operating system saves on a context switch).
#pragma once

#include <cstdint>

#include "device/row_kernels/isa_level.h"

namespace trident {

struct CpuFeatures {
  IsaLevel level = IsaLevel::kBaseline;
  bool avx512_bf16 = false;
  bool amx_bf16 = false;
};

CpuFeatures detect_cpu_features();

// How bf16 operands are multiplied. Those of f16 are always converted.
enum class Bf16Products : std::uint8_t {
  kNative,     // AMX or AVX512-BF16 instructions
  kConverted,  // panel by panel converted to f32 in the workspace, multiplied in f32
};

// The rate of bf16 products over that of fp32's, of instructions alone, decides: vdpbf16ps takes half as long as two fp32
// multiply-adds on some processors and twice as long on others. 0: there are no such instructions. Nothing near 1 is known.
constexpr Bf16Products bf16_products_at(double bf16_over_fp32) {
  return bf16_over_fp32 > 1 ? Bf16Products::kNative : Bf16Products::kConverted;
}
// The ratio where matrix units multiply bf16: 1,024 FLOP a cycle and core over 64 with AMX, as much on GPUs' tensor cores.
inline constexpr double kMatrixUnitsOverFp32 = 16;

}  // namespace trident
