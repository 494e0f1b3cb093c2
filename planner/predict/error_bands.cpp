#include "planner/predict/error_bands.h"

#include <array>

namespace trident {
namespace {

// tests/planner/predict/error_bands_test.cpp prices the rows again and says what has to stand here.
constexpr std::array<ErrorBand, 5> kBands = {{
    {"", "16-bit", 0.89, 1.13, 257},
    {"a100_sxm_40gb", "16-bit", 0.94, 1.00, 33, "33 pytorch_fsdp1"},
    {"a100_sxm_80gb", "16-bit", 0.89, 1.14, 162, "147 megatron_lm, 9 megatron_deepspeed, 6 pytorch_fsdp1"},
    {"h100_sxm", "16-bit", 0.94, 1.05, 46, "33 pytorch_fsdp1, 12 megatron_core_te, 1 torchtitan_fsdp2"},
    {"v100_sxm_16gb", "16-bit", 0.81, 1.67, 16, "16 oneflow"},
}};

// tests/planner/predict/error_bands_test.cpp reads the page of the measurement again.
constexpr ErrorBand kProcessorTimes{"cpu", "", 0.93, 1.06, 63}, kProcessorMemory{"cpu", "", 0.98, 1.01, 63};

}  // namespace

std::span<const ErrorBand> error_bands() { return kBands; }

const ErrorBand& error_band(std::string_view hardware) {
  for (const ErrorBand& band : kBands)
    if (band.hardware == hardware) return band;
  return kBands.front();
}

const ErrorBand& processor_band() { return kProcessorTimes; }
const ErrorBand& resident_band() { return kProcessorMemory; }

}  // namespace trident
