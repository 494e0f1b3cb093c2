#include <fmt/format.h>

#include <algorithm>
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

struct StepSum {
  double measured = 0, priced = 0, calls = 0, collectives = 0;  // of a rank, on average
};

StepSum sum_of(const RunPlan& plan, const CpuRates& rates, int steps) {
  const int ranks = plan.world_size(), stages = plan.grid.degrees().pipeline;
  const CpuPrices prices(rates, {ranks, plan.threads_per_rank, plan.compute});
  Doorbell doorbell;
  CpuDevice device(doorbell, {});
  std::vector<StepRecord> records;
  for (int stage = 0; stage < stages; ++stage)
    records.push_back(record_step(plan, plan.grid.rank({.pipeline = stage}), &device.ops(), DryWork::kStep));
  StepSum sum;
  sum.priced = cpu_seconds_of_step(records, ranks / stages, prices) / ranks;
  for (const StepRecord& record : records) {
    const std::vector<std::int64_t> counts = record.counts();
    for (std::size_t p = 0; p < counts.size(); ++p) {
      for (const auto& call : record.passes[p].calls) {
        const bool operation = std::holds_alternative<RecordedOperation>(call);
        (operation ? sum.calls : sum.collectives) += static_cast<double>(counts[p]) / stages;
      }
    }
  }
  sum.measured = step_cpu_seconds(plan, steps);
  return sum;
}

// Least squares of relative errors: a constant and what each call costs beside what the tables say; neither below 0.
std::pair<double, double> fit(std::span<const StepSum> sums, double StepSum::*count) {
  double w = 0, x = 0, xx = 0, y = 0, xy = 0;
  for (const StepSum& s : sums) {
    const double weight = 1 / (s.measured * s.measured), calls = s.*count, rest = s.measured - s.priced;
    w += weight, x += weight * calls, xx += weight * calls * calls, y += weight * rest, xy += weight * calls * rest;
  }
  const double determinant = w * xx - x * x;
  double constant = determinant > 0 ? (y * xx - x * xy) / determinant : 0,
         each = determinant > 0 ? (w * xy - x * y) / determinant : 0;
  if (constant < 0) constant = 0, each = xx > 0 ? xy / xx : 0;
  if (each < 0) each = 0, constant = std::max(y / w, 0.0);
  return {constant, each};
}

// Likewise, of calls of groups alone.
double for_each_collective(std::span<const StepSum> sums) {
  double xx = 0, xy = 0;
  for (const StepSum& s : sums) {
    const double share = s.collectives / s.measured;
    xx += share * share, xy += share * (s.measured - s.priced) / s.measured;
  }
  return xx > 0 ? std::max(xy / xx, 0.0) : 0;
}

}  // namespace

void measure_constants(const CalibrateOptions& options, const std::string& source, CpuRates& rates) {
  rates.constants_source = source;
  std::vector<StepSum> alone, apart, sharing;
  for (const TrainedModel& model : models_on_one_rank(options.largest))
    alone.push_back(sum_of(plan_of(model, 1), rates, 2 * options.steps));
  std::tie(rates.constants.step_seconds, rates.constants.call_seconds) = fit(alone, &StepSum::calls);
  for (const TrainedModel& model : models_on_ranks(options.largest)) {
    const RunPlan plan = plan_of(model, 1);
    (plan.world_size() > rates.cores ? sharing : apart).push_back(sum_of(plan, rates, 2 * options.steps));
  }
  rates.constants.collective_seconds = for_each_collective(apart);
  rates.constants.shared_seconds = for_each_collective(sharing);
}

}  // namespace trident
