#include "planner/price/kernel_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"

namespace trident {

namespace {

struct Tile {
  double rows;
  double columns;
  double rate;  // of the best tile's: smaller tiles read more operand bytes for each product
};

// The output tiles that GPU libraries choose from. Relative rates: CUTLASS's published profile of tile shapes on A100.
constexpr Tile kTiles[] = {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.94}, {128, 64, 0.80}, {64, 64, 0.62}};

// FP32 without tensor cores: 19.5 of 312 TFLOP/s on A100, 67 of 989 on H100 (data sheets).
constexpr double kFp32Peak = 1.0 / 16;

bool has_4_bytes(MathFormat format) { return format == MathFormat::kTf32 || format == MathFormat::kFp32; }

}  // namespace

double peak_flops(const GpuRates& gpu, MathFormat format) {
  if (format == MathFormat::kFp8) return gpu.peak_fp8;
  if (format == MathFormat::kFp4) return gpu.peak_fp4;
  const double fp32 = gpu.peak_fp32.value_or(kFp32Peak * gpu.peak_16bit);
  if (format == MathFormat::kFp32) return fp32;
  if (format == MathFormat::kTf32) return gpu.peak_tf32.value_or(fp32);
  return gpu.peak_16bit;
}

double gemm_seconds(const GpuRates& gpu, double m, double n, double k, double batch, double rate, MathFormat format) {
  double peak = gpu.peak_16bit;
  double overhead = gpu.gemm.inner_overhead;
  if (has_4_bytes(format)) {
    peak = peak_flops(gpu, format);
    overhead *= peak / gpu.peak_16bit;
  } else if (format != MathFormat::k16Bit) {
    peak *= 1 + (peak_flops(gpu, format) / gpu.peak_16bit - 1) * gpu.fp8_gain;
  }
  const double sm_rate = peak * gpu.gemm.sustained * rate / gpu.multiprocessors;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(m / tile.rows) * std::ceil(n / tile.columns) * batch;
    const double waves = std::ceil(tiles / gpu.multiprocessors);
    const double steps = k + overhead;
    best = std::min(best, waves * 2 * tile.rows * tile.columns * steps / (sm_rate * tile.rate));
  }
  const double bytes = (has_4_bytes(format) ? 4 : 2) * batch * (m * k + k * n + m * n);
  return std::max(best, bytes / (gpu.memory_bytes_per_s * gpu.row_fraction)) + gpu.kernel_start_s;
}

double row_seconds(const GpuRates& gpu, double bytes, double kernels) {
  return bytes / (gpu.memory_bytes_per_s * gpu.row_fraction) + kernels * gpu.kernel_start_s;
}

double fused_attention_seconds(const GpuRates& gpu, std::string_view kernel, double products, bool backward) {
  for (const AttentionRates& rates : gpu.attention)
    if (rates.kernel == kernel) {
      const double flops = backward ? 2.5 * products / 2 : products / 2;
      return flops / (gpu.peak_16bit * (backward ? rates.backward : rates.forward)) + gpu.kernel_start_s;
    }
  throw ConfigError(fmt::format("{}: the profile has no rates of the attention kernel \"{}\"; add them with their source", gpu.name,
                                kernel));
}

}  // namespace trident
