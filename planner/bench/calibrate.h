// Measures what the processors of this machine reach in training, by size, into a hardware profile.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "planner/price/cpu_rates.h"

namespace trident {

struct CalibrateOptions {
  double seconds = 0.004;       // of each point
  int steps = 5;                // of every small model, and as many for whole steps; 3 or 4 of those that take long
  std::int64_t largest = 2048;  // side of a product, length of a sequence; also bounds the models that are trained
  int every = 1;                // of the models that are trained, in their order
  std::string name = "cpu";     // of the profile
  std::function<void()> check = [] {};     // called between measurements; what it throws ends them
  std::string program = "/proc/self/exe";  // trident, whose runs' memory is measured
};

// A minute's, for a profile that is kept.
inline CalibrateOptions short_calibration() {
  CalibrateOptions options;
  options.seconds = 0.001, options.steps = 2, options.largest = 1024, options.every = 2;
  return options;
}

// All cores are at work: by one rank on each, and by one rank on all. Seconds of ranks with one thread are CPU seconds, the least
// of several calls: other programs disturb those less; of more threads they are the clock's. `say` is told of every part, one line
// each. StorageError: a run of options.program fails.
CpuRates calibrate_cpu(const CalibrateOptions& options, const std::function<void(const std::string& line)>& say);

// Parts of it. Products and attention by shape, of ranks of one thread on every core, or of one of `threads` of all, into
// `rates.products` and `rates.attention`.
void measure_products(const CalibrateOptions& options, int ranks, int threads, const std::string& source, CpuRates& rates);
void measure_attention(const CalibrateOptions& options, int ranks, int threads, const std::string& source, CpuRates& rates);
// Collectives of groups of 2, 4, ... `most_ranks` ranks that are threads, in worlds of as many and of more, into
// `rates.collectives`.
void measure_collectives(const CalibrateOptions& options, int most_ranks, const std::string& source, CpuRates& rates);

}  // namespace trident
