#include <fmt/format.h>

#include <algorithm>
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
#include "train/run/dry_run.h"

namespace trident {
namespace {

// A rank's step, on average.
struct StepSum {
  double measured = 0, priced = 0;  // seconds; `priced`: its operations as they were measured, its collectives by the tables
  double tables = 0;                // its operations by the tables
  double one = 1, calls = 0, collectives = 0;
  double roots = 0;  // sum over collectives of the root of the seconds worked since the one before
};

void add_pass(const PassRecord& pass, double times, const CpuPrices& prices, StepSum& sum) {
  double worked = 0;
  for (const auto& call : pass.calls) {
    if (const auto* const operation = std::get_if<RecordedOperation>(&call)) {
      const double seconds = prices.device_seconds(*operation);
      worked += seconds;
      sum.tables += times * seconds;
      sum.calls += times;
    } else if (const auto& collective = std::get<RecordedCollective>(call); collective.size > 1) {
      sum.collectives += times;
      sum.roots += times * std::sqrt(std::exchange(worked, 0.0));
      sum.priced += times * prices.seconds(collective, {});
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

// Least squares of relative errors: what is measured and not priced, as so much for each of `first` and for each of `second`;
// neither below 0.
std::pair<double, double> fit(std::span<const StepSum> sums, double StepSum::*first, double StepSum::*second) {
  double aa = 0, ab = 0, bb = 0, ay = 0, by = 0;
  for (const StepSum& s : sums) {
    const double a = s.*first / s.measured, b = s.*second / s.measured, y = (s.measured - s.priced) / s.measured;
    aa += a * a, ab += a * b, bb += b * b, ay += a * y, by += b * y;
  }
  const double determinant = aa * bb - ab * ab;
  double of_first = determinant > 0 ? (bb * ay - ab * by) / determinant : 0,
         of_second = determinant > 0 ? (aa * by - ab * ay) / determinant : 0;
  if (of_first < 0) of_first = 0, of_second = bb > 0 ? by / bb : 0;
  if (of_second < 0) of_second = 0, of_first = aa > 0 ? std::max(ay / aa, 0.0) : 0;
  return {of_first, of_second};
}

}  // namespace

void fit_constants(std::span<const TrainedSteps> steps, const std::string& source, CpuRates& rates) {
  rates.constants = {};
  rates.constants_source = source;
  std::vector<StepSum> alone, apart, sharing;
  for (const TrainedSteps& one : steps)
    if (one.plan.world_size() == 1) alone.push_back(sum_of(one, one.cpu, rates));
  std::tie(rates.constants.step_seconds, rates.constants.call_seconds) = fit(alone, &StepSum::one, &StepSum::calls);
  for (const TrainedSteps& one : steps) {
    if (one.plan.world_size() > rates.cores)
      sharing.push_back(sum_of(one, one.cpu, rates));
    else if (one.plan.world_size() > 1 && one.plan.grid.degrees().pipeline == 1)  // stages wait for more than their messages
      apart.push_back(sum_of(one, one.wall, rates));
  }
  std::tie(rates.constants.collective_seconds, rates.constants.skew_root_seconds) =
      fit(apart, &StepSum::collectives, &StepSum::roots);
  std::tie(rates.constants.shared_seconds, std::ignore) = fit(sharing, &StepSum::collectives, &StepSum::collectives);
}

}  // namespace trident
