// How far prices of a GPU were off where published runs say what a step took: the band that is printed beside a predicted time.
#pragma once

#include <span>
#include <string_view>

namespace trident {

// Of ten such runs eight took between `low` and `high` times what was predicted: between the tenths from below and above of
// measured over predicted step time, over the `validate` rows of docs/planner-accuracy.md and those of its other runs whose table
// was opened, rounded outwards to hundredths. A constant was fitted to one of them (docs/planner-accuracy.md), and rules were
// changed with some in view. The runs are of other programs, each priced as its own stack.
struct ErrorBand {
  std::string_view hardware;  // a file of configs/hardware; empty: all GPUs
  std::string_view precision;
  double low = 1, high = 1;
  int runs = 0;
  std::string_view of = {};  // runs by stack: "33 pytorch_fsdp1, 12 megatron_core_te"
};

std::span<const ErrorBand> error_bands();

// Of 16-bit runs on this hardware; where there are none, of those on all.
const ErrorBand& error_band(std::string_view hardware);

// Of the shipped profile of processors: of ten runs that were measured beside it eight took between so many times the predicted
// time, or resident memory (the page that docs/planner.md names). None of these runs is of models that calibrated it.
const ErrorBand& processor_band();
const ErrorBand& resident_band();

}  // namespace trident
