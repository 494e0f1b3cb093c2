// What a run is going to take on some hardware: memory of its ranks and the time of a step.
#pragma once

#include <vector>

#include "device/ops.h"
#include "plan/step_price.h"
#include "train/plan/run_plan.h"
#include "train/run/dry_run.h"

namespace trident {

struct Forecast {
  std::vector<DryRun> stages;  // of the rank of each pipeline stage that has tp 0 and dp 0; the others need and send as much
  RecordedStep step;
  StepPrice price;

  double tokens_per_second(const RunPlan& plan) const { return static_cast<double>(plan.tokens_per_step()) / price.seconds; }
};

// One rank of each stage is run dry. `oracle` as for dry_run().
Forecast forecast_run(const RunPlan& plan, const WorkPrices& prices, Ops* oracle);

}  // namespace trident
