// How far prices of a GPU were off where published runs say what a step took: the band that is printed beside a predicted time.
#pragma once

#include <span>
#include <string_view>

namespace trident {

// Eight of ten published runs took between `low` and `high` times the predicted step time: these are the first and ninth deciles of
// measured over predicted time, rounded outwards to hundredths. The rows are the `validate` rows of docs/design/planner-accuracy.md
// and its other runs whose table was opened. One constant was fitted to one of them, and rules were changed with some in view, as
// that page says. Other programs made the runs; each is priced as its own stack.
struct ErrorBand {
  std::string_view hardware;  // a file of configs/hardware; empty: all GPUs
  std::string_view precision;
  double low = 1, high = 1;
  int runs = 0;
  std::string_view of = {};  // runs by stack: "33 pytorch_fsdp1, 12 megatron_core_te"
};

std::span<const ErrorBand> error_bands();

// The band of 16-bit runs on this hardware, or of those on all hardware where it has none.
const ErrorBand& error_band(std::string_view hardware);

// The bands of step time and of resident memory for the shipped profile of processors: eight of ten runs that were measured with it
// lay within them (docs/planner.md names the page). No model of these runs calibrated the profile.
const ErrorBand& processor_band();
const ErrorBand& resident_band();

}  // namespace trident
