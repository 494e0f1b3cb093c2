#include "train/forecast/forecast.h"

#include "train/plan/step_recorder.h"

namespace trident {

Forecast forecast_run(const RunPlan& plan, const WorkPrices& prices, Ops* oracle) {
  Forecast forecast;
  forecast.step = {plan.grid, plan.step_spec.overlap, plan.step_programs, {}};
  for (int stage = 0; stage < plan.grid.degrees().pipeline; ++stage) {
    StepRecorder recorder(Interning::kOn);
    forecast.stages.push_back(dry_run(plan, plan.grid.rank({.pipeline = stage}), oracle, DryWork::kStep, &recorder));
    forecast.step.records.push_back(recorder.finish());
  }
  forecast.price = price_step(forecast.step, prices);
  return forecast;
}

}  // namespace trident
