// Forecasts a run on some hardware: memory of its ranks and the time of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "device/ops.h"
#include "planner/price/cpu_rates.h"
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

// The process whose threads are ranks on processors.
struct ProcessPlan {
  double cpu_seconds = 0;     // of all ranks in a step
  bool shares_cores = false;  // more computing threads than cores
  double step_seconds = 0;    // of the simulated step; where cores are shared, with these, and at least cpu_seconds / cores
  double arena_bytes = 0;     // of all ranks
  double staging_bytes = 0;   // of checkpoints, of all ranks (checkpoint.staging)
  double resident_bytes = 0;  // of the process, while it saves
};

// `plan` with as many threads per rank as it has there; this machine's processor is asked for workspaces. ConfigError: a table of
// the profile is missing, by name. `forecast`: as if every rank had cores of its own.
ProcessPlan forecast_on_processors_here(const RunPlan& plan, const CpuRates& rates, Forecast& forecast);

}  // namespace trident
