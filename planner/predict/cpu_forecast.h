// Forecasts a run on this or another machine's processors, with threads as ranks.
#pragma once

#include "planner/predict/forecast.h"
#include "planner/price/cpu_prices.h"

namespace trident {

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
