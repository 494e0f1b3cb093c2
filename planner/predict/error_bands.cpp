#include "planner/predict/error_bands.h"

#include <array>

namespace trident {
namespace {

// tests/planner/predict/error_bands_test.cpp prices the rows again and says what has to stand here.
constexpr std::array<ErrorBand, 7> kBands = {{
    {"", "16-bit", 0.88, 1.18, 178, "", false, 16384},
    {"", "16-bit", 0.94, 1.02, 72, "", true, 512},
    {"a100_sxm_40gb", "16-bit", 0.94, 1.00, 33, "33 pytorch_fsdp1", true, 128},
    {"a100_sxm_80gb", "16-bit", 0.89, 1.14, 150, "147 megatron_lm, 3 megatron_deepspeed", false, 12288},
    {"h100_sxm", "16-bit", 0.93, 1.17, 12, "12 megatron_core_te", false, 16384},
    {"h100_sxm", "16-bit", 0.96, 1.03, 33, "33 pytorch_fsdp1", true, 512},
    {"v100_sxm_16gb", "16-bit", 0.81, 1.67, 16, "16 oneflow", false, 32},
}};
constexpr double kMostOverTensors = 1.02;

// tests/planner/predict/error_bands_test.cpp reads the page of the measurement again.
constexpr ErrorBand kProcessorTimes{"cpu", "", 0.93, 1.06, 63}, kProcessorMemory{"cpu", "", 0.98, 1.01, 63};

}  // namespace

std::span<const ErrorBand> error_bands() { return kBands; }

std::optional<ErrorBand> error_band(std::string_view hardware, const RunKind& run) {
  if (run.gathers && run.splits_model) return std::nullopt;
  std::optional<ErrorBand> band;
  for (const ErrorBand& it : kBands)  // that of all hardware comes first
    if (it.gathers == run.gathers && it.most_gpus >= run.gpus && (it.hardware.empty() || it.hardware == hardware)) band = it;
  return band;
}

double tensors_off(double bytes) { return (kMostOverTensors - 1) * bytes; }

const ErrorBand& processor_band() { return kProcessorTimes; }
const ErrorBand& resident_band() { return kProcessorMemory; }

}  // namespace trident
