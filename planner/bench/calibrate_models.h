// The models that are trained to calibrate with: small ones of several families, widths and precisions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/plan/run_plan.h"

namespace trident {

struct TrainedModel {
  std::string name;
  TrainConfig config;
};

// On one rank each. `largest` bounds widths and sequences; of each precision every such one is taken.
std::vector<TrainedModel> models_on_one_rank(std::int64_t largest, int every);
// On two to eight ranks, in the ways to divide a model.
std::vector<TrainedModel> models_on_ranks(std::int64_t largest, int every);
// Small models on 1 to 8 ranks.
std::vector<TrainedModel> models_for_memory(std::int64_t largest, const std::string& precision, int every);

// `threads` of each rank.
RunPlan plan_of(const TrainedModel& model, int threads);

}  // namespace trident
