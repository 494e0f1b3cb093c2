#include "planner/predict/cpu_forecast.h"

#include <algorithm>

#include "train/run/dry_run.h"

namespace trident {

ProcessPlan forecast_on_processors_here(const RunPlan& plan, const CpuRates& rates, Forecast& forecast) {
  const CpuPrices prices(rates, {plan.world_size(), plan.threads_per_rank, plan.compute});
  ProcessPlan result;
  forecast = forecast_run(plan, prices, processor_here(plan).get());
  const int ranks_of_a_stage = plan.world_size() / plan.grid.degrees().pipeline;
  result.cpu_seconds = cpu_seconds_of_step(forecast.step.records, ranks_of_a_stage, prices);
  result.shares_cores = prices.shares_cores();
  result.step_seconds = forecast.price.seconds;
  if (result.shares_cores)
    result.step_seconds =
        std::max(result.cpu_seconds / rates.cores,
                 price_step(forecast.step, prices, prices.shared_cores(plan.grid.degrees().pipeline)).seconds);
  for (const DryRun& stage : forecast.stages) {
    result.arena_bytes += static_cast<double>(stage.arena.total_bytes()) * ranks_of_a_stage;
    result.staging_bytes += static_cast<double>(stage.staging) * ranks_of_a_stage;
  }
  result.resident_bytes = prices.resident_bytes(result.arena_bytes, plan.world_size()) + result.staging_bytes;
  return result;
}

}  // namespace trident
