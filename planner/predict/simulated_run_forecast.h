// The forecast of a run on the hardware that it has: its step simulated with prices, and at its end what became of that.
#pragma once

#include <memory>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/predict/comparison.h"
#include "planner/predict/run_prices.h"
#include "train/run/run_inputs.h"
#include "train/run/run_forecast.h"

namespace trident {

class SimulatedRunForecast final : public RunForecast {
 public:
  // Made before ranks have memory, which resident memory is compared with. `inputs` outlives it.
  SimulatedRunForecast(const RunInputs& inputs, const RunHardware& hardware, RunPrices prices);

  Predicted predicted() override;
  void show_step(std::int64_t step, const std::vector<std::vector<InstructionTimes>>& last_step) override;
  LogLines compare(const RunSummary& summary) override;

 private:
  PredictedMemory memory() const;

  const RunInputs& inputs_;
  RunHardware hardware_;
  RunPrices prices_;
  std::optional<PredictedStep> step_;
  std::vector<std::vector<TaskTimes>> spans_;  // of the simulated step, where there is to be a report
};

// The same with the prices of the hardware; a profile that lacks some is said among the plan's notes.
std::unique_ptr<RunForecast> make_run_forecast(RunInputs& inputs, const RunHardware& hardware);

}  // namespace trident
