// Forecasts a run on some hardware: memory of its ranks and the time of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "device/ops.h"
#include "planner/price/step_price.h"
#include "train/plan/run_plan.h"
#include "train/run/dry_run.h"

namespace trident {

struct Forecast {
  std::vector<DryRun> stages;  // of the rank of each pipeline stage that has tp 0 and dp 0; the others need and send as much
  RecordedStep step;
  StepPrice price;

  double tokens_per_second(const RunPlan& plan) const { return static_cast<double>(plan.tokens_per_step()) / price.seconds; }
};

// kShort: steps of many micro-batches are run with few, and what these repeat counts for the others; the same but for the time it
// takes. Stages where that cannot be seen in the programs are run in full.
enum class DrySteps : std::uint8_t { kShort, kFull };

// One rank of each stage is run dry. `oracle` as for dry_run().
Forecast forecast_run(const RunPlan& plan, const WorkPrices& prices, Ops* oracle, DrySteps steps = DrySteps::kShort);

}  // namespace trident
