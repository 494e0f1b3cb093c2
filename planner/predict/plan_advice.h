// Advice that makes a configuration fit, or faster: changes of one or two keys, each planned and priced like the configuration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/predict/cluster_forecast.h"

namespace trident {

struct PricedChange {
  std::vector<std::string> settings;  // "recompute.policy=full": what to --set
  double seconds = 0;                 // of a step
  std::int64_t bytes = 0;             // that have to fit: ClusterForecast::needed_bytes()
  bool fits = false;
};

// Other recomputation, the next larger and smaller micro-batch, both at once, other ZeRO presets, interleaved stages, sequence
// parallelism, and, where it does not fit, attention that adds in any order: those of them that this model, batch and layout allow,
// as make_run_plan() says, with the same ranks and the same global batch.
std::vector<PricedChange> priced_changes(const PlanHardware& hardware, const ClusterForecast& now);

// The changes worth saying, best first: where `now` fits, those that fit and save at least half a percent of the step; where
// it does not, those that fit, or the one that needs least if none does. At most `most` of them.
std::vector<PricedChange> advice_of(const ClusterForecast& now, std::vector<PricedChange> changes, std::size_t most = 5);

}  // namespace trident
