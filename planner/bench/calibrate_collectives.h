// Collectives of ranks that are threads, by size and number of ranks.
#pragma once

#include <string>

#include "planner/bench/calibrate.h"

namespace trident {

// Fills `rates.collectives`: groups of 2, 4, ... `most_ranks` ranks, in worlds of as many and of more.
void measure_collectives(const CalibrateOptions& options, int most_ranks, const std::string& source, CpuRates& rates);

}  // namespace trident
