// How far prices of a GPU were off where published runs say what a step took: the band that is printed beside a predicted time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace trident {

// Eight of ten published runs took between `low` and `high` times the predicted step time: these are the first and ninth deciles of
// measured over predicted time, rounded outwards to hundredths. The rows are the `validate` rows of docs/design/planner-accuracy.md
// and its other runs whose table was opened. One constant was fitted to one of them, and rules were changed with some in view, as
// that page says. Other programs made the runs; each is priced as its own stack. Left out are one run that gathers and splits, and
// those of DeepSpeed's first ZeRO 3, which are priced with a network of their own.
struct ErrorBand {
  std::string_view hardware;  // a file of configs/hardware; empty: all GPUs
  std::string_view precision;
  double low = 1, high = 1;
  int runs = 0;
  std::string_view of = {};    // runs by stack: "33 pytorch_fsdp1, 12 megatron_core_te"
  bool gathers = false;        // runs that gather parameters on use (ZeRO 3, FSDP), and split no model; else runs that do not
  std::int64_t most_gpus = 0;  // that one of them takes
};

std::span<const ErrorBand> error_bands();

// A run has the band of published ones that share these with it.
struct RunKind {
  bool gathers = false, splits_model = false;  // over tensor or pipeline ranks
  std::int64_t gpus = 1;
};

// The band of 16-bit runs of its kind on this hardware, or of those on all hardware where it has fewer than ten, or none with as
// many GPUs. Nothing where no published run resembles it: more GPUs than any had, or parameters that are gathered and
// split as well.
std::optional<ErrorBand> error_band(std::string_view hardware, const RunKind& run);

// The bytes by which tensors may take more than `bytes` that were predicted: nine of ten published runs that print a peak took no
// more above it.
double tensors_off(double bytes);

// The bands of step time and of resident memory for the shipped profile of processors: eight of ten runs that were measured with it
// lay within them (docs/planner.md names the page). No model of these runs calibrated the profile.
const ErrorBand& processor_band();
const ErrorBand& resident_band();

}  // namespace trident
