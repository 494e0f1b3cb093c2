#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "plan/cpu_prices.h"
#include "train/bench/calibrate_models.h"
#include "train/bench/calibrate_training.h"
#include "train/bench/step_overheads.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

void add_pass(const PassRecord& pass, double times, const CpuPrices& prices, StepSum& sum) {
  double worked = 0;
  for (const auto& call : pass.calls) {
    if (const auto* const operation = std::get_if<RecordedOperation>(&call)) {
      const double seconds = prices.device_seconds(*operation);
      worked += seconds;
      sum.calls += times;
    } else if (const auto& collective = std::get<RecordedCollective>(call); collective.size > 1) {
      const double seconds = prices.seconds(collective, {});
      if (seconds > 0) sum.collectives += times;  // what receives counts with what sends
      sum.roots += times * std::sqrt(std::exchange(worked, 0.0));
      sum.priced += times * seconds;
    }
  }
}

StepSum sum_of(const TrainedSteps& steps, double measured, const CpuRates& rates) {
  const int ranks = steps.plan.world_size(), stages = steps.plan.grid.degrees().pipeline;
  const CpuPrices prices(rates, {ranks, steps.plan.threads_per_rank, steps.plan.compute});
  Doorbell doorbell;
  CpuDevice device(doorbell, {});
  StepSum sum;
  sum.measured = measured;
  sum.priced = steps.operations + prices.step_seconds();
  for (int stage = 0; stage < stages; ++stage) {
    const StepRecord record = record_step(steps.plan, steps.plan.grid.rank({.pipeline = stage}), &device.ops(), DryWork::kStep);
    const std::vector<std::int64_t> counts = record.counts();
    for (std::size_t p = 0; p < counts.size(); ++p)
      add_pass(record.passes[p], static_cast<double>(counts[p]) / stages, prices, sum);
  }
  sum.priced += sum.calls * rates.constants.call_seconds;
  return sum;
}

}  // namespace

void fit_constants(std::span<const TrainedSteps> steps, const std::string& source, CpuRates& rates) {
  rates.constants = {};
  rates.constants_source = source;
  std::vector<StepSum> alone, apart, sharing;
  for (const TrainedSteps& one : steps)
    if (one.plan.world_size() == 1) alone.push_back(sum_of(one, one.cpu, rates));
  std::tie(rates.constants.step_seconds, rates.constants.call_seconds) = seconds_of_each(alone, &StepSum::one, &StepSum::calls);
  for (const TrainedSteps& one : steps) {
    if (one.plan.world_size() > rates.cores)
      sharing.push_back(sum_of(one, one.cpu, rates));
    else if (one.plan.world_size() > 1 && one.plan.grid.degrees().pipeline == 1)  // stages wait for more than their messages
      apart.push_back(sum_of(one, one.wall, rates));
  }
  std::tie(rates.constants.collective_seconds, rates.constants.skew_root_seconds) =
      seconds_of_each(apart, &StepSum::collectives, &StepSum::roots);
  rates.constants.shared_seconds = seconds_of_each(sharing, &StepSum::collectives);
}

}  // namespace trident
