// Device seconds of single kernels from shapes and a hardware profile.
#pragma once

#include <string_view>

#include "planner/price/gpu_rates.h"

namespace trident {

// kFp32: without tensor cores.
enum class MathFormat { k16Bit, kFp8, kFp4, kTf32, kFp32 };

// C[m, n] = A[m, k] B[k, n], `batch` times, 16-bit output. Tiles of the output fill the multiprocessors in waves; each tile takes
// k + inner_overhead steps; a GEMM is no faster than its operands can be read. `rate` multiplies the math rate.
// In kTf32 and kFp32 operands have 4 bytes, and a tile takes as long besides its inner loop as in 16 bits.
double gemm_seconds(const GpuRates& gpu, double m, double n, double k, double batch = 1, double rate = 1,
                    MathFormat format = MathFormat::k16Bit);

// Memory-bound kernels that move `bytes` in `kernels` launches.
double row_seconds(const GpuRates& gpu, double bytes, double kernels = 1);

// A fused attention kernel by name; `products` are the FLOPs of its two forward products over the full square of positions,
// of which a causal kernel does half. Backward does 2.5 times the forward's (five products for two).
// Throws ConfigError: the profile has no such kernel.
double fused_attention_seconds(const GpuRates& gpu, std::string_view kernel, double products, bool backward);

// Dense peak in a format; 0: the GPU has no such units. What a profile does not say: tf32 is fp32's, and that a 16th of 16 bits'.
double peak_flops(const GpuRates& gpu, MathFormat format);

}  // namespace trident
