// Device seconds of single kernels from shapes and a hardware profile.
#pragma once

#include <string_view>

#include "plan/gpu_rates.h"

namespace trident {

enum class MathFormat { k16Bit, kFp8, kFp4 };

// C[m, n] = A[m, k] B[k, n], `batch` times, 16-bit output. Tiles of the output fill the multiprocessors in waves; each tile takes
// k + inner_overhead steps; a GEMM is no faster than its operands can be read. `rate` multiplies the math rate.
double gemm_seconds(const GpuRates& gpu, double m, double n, double k, double batch = 1, double rate = 1,
                    MathFormat format = MathFormat::k16Bit);

// Memory-bound kernels that move `bytes` in `kernels` launches.
double row_seconds(const GpuRates& gpu, double bytes, double kernels = 1);

// A fused attention kernel by name; `products` are the FLOPs of its two forward products over the full square of positions,
// of which a causal kernel does half. Backward does 2.5 times the forward's (five products for two).
// Throws ConfigError: the profile has no such kernel.
double fused_attention_seconds(const GpuRates& gpu, std::string_view kernel, double products, bool backward);

// Dense peak in a format; 0: the GPU has no such units.
double peak_flops(const GpuRates& gpu, MathFormat format);

}  // namespace trident
