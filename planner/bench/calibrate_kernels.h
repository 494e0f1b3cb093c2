// Products and attention by shape.
#pragma once

#include <functional>
#include <string>

#include "planner/bench/calibrate.h"

namespace trident {

// Fills `rates.products` and `rates.attention` for ranks of one thread on every core, or one of `threads` of all.
void measure_products(const CalibrateOptions& options, int ranks, int threads, const std::string& source, CpuRates& rates);
void measure_attention(const CalibrateOptions& options, int ranks, int threads, const std::string& source, CpuRates& rates);

}  // namespace trident
