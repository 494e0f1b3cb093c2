#include <fmt/format.h>

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
#include "planner/bench/calibrate_training.h"
#include "planner/bench/step_overheads.h"
#include "planner/price/cpu_prices.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

constexpr double kUndisturbedWall = 1.05;  // of the time that a thread computes, what passes

void add_pass(const PassRecord& pass, double times, const CpuPrices& prices, StepSum& sum) {
  double worked = 0;
  for (const auto& call : pass.calls) {
    if (const auto* const operation = std::get_if<RecordedOperation>(&call)) {
      const double seconds = prices.device_seconds(*operation);
      worked += seconds;
      sum.tables += times * seconds;
      sum.calls += times;
    } else if (const auto& collective = std::get<RecordedCollective>(call); collective.size > 1) {
      const double seconds = prices.seconds(collective, {});
      if (seconds > 0) sum.collectives += times;  // what receives counts with what sends
      sum.roots += times * std::sqrt(std::exchange(worked, 0.0));
      sum.priced += times * seconds;
    }
  }
}

// The times that operations count with: as they were measured within these steps, or as the tables have them.
enum class Operations : std::uint8_t { kMeasured, kTables };

StepSum sum_of(const TrainedSteps& steps, double measured, const CpuRates& rates, Operations operations) {
  const int ranks = steps.plan.world_size(), stages = steps.plan.grid.degrees().pipeline;
  const CpuPrices prices(rates, {ranks, steps.plan.threads_per_rank, steps.plan.compute});
  Doorbell doorbell;
  CpuDevice device(doorbell, {});
  StepSum sum;
  sum.measured = measured;
  sum.priced = prices.step_seconds();
  for (int stage = 0; stage < stages; ++stage) {
    const StepRecord record = record_step(steps.plan, steps.plan.grid.rank({.pipeline = stage}), &device.ops(), DryWork::kStep);
    const std::vector<std::int64_t> counts = record.counts();
    for (std::size_t p = 0; p < counts.size(); ++p)
      add_pass(record.passes[p], static_cast<double>(counts[p]) / stages, prices, sum);
  }
  sum.priced += operations == Operations::kTables ? sum.tables : steps.operations + sum.calls * rates.constants.call_seconds;
  return sum;
}

}  // namespace

void fit_constants(std::span<const TrainedSteps> steps, const std::string& source, CpuRates& rates) {
  rates.constants = {};
  rates.constants_source = source;
  std::vector<StepSum> alone, apart, of_tensor_parallel, sharing;
  for (const TrainedSteps& one : steps)
    if (one.plan.world_size() == 1) alone.push_back(sum_of(one, one.cpu, rates, Operations::kMeasured));
  std::tie(rates.constants.step_seconds, rates.constants.call_seconds) = seconds_of_each(alone, &StepSum::one, &StepSum::calls);
  for (const TrainedSteps& one : steps) {
    if (one.plan.world_size() > rates.cores)  // what others put out of the caches makes operations slower than the tables say
      sharing.push_back(sum_of(one, one.cpu, rates, Operations::kTables));
    if (one.plan.world_size() == 1 || one.plan.world_size() > rates.cores) continue;
    const ParallelDegrees& degrees = one.plan.grid.degrees();
    if (degrees.pipeline > 1) continue;  // stages wait for more than their messages
    apart.push_back(sum_of(one, one.wall, rates, Operations::kMeasured));
    if (degrees.tensor > 1) of_tensor_parallel.push_back(apart.back());
  }
  // Ranks that meet in every layer drift apart between; what is left is of the calls.
  const double skew = median_of_each(of_tensor_parallel, &StepSum::roots);
  for (StepSum& sum : apart) sum.priced += skew * sum.roots;
  rates.constants.skew_root_seconds = skew;
  rates.constants.collective_seconds = median_of_each(apart, &StepSum::collectives);
  std::tie(rates.constants.shared_seconds, rates.constants.shared_root_seconds) =
      seconds_of_each(sharing, &StepSum::collectives, &StepSum::roots);
}

std::string disturbance(std::span<const TrainedSteps> steps, const CpuRates& rates) {
  double wall = 0, cpu = 0;
  for (const TrainedSteps& one : steps)
    if (one.plan.world_size() == 1) wall += one.wall, cpu += one.cpu;
  if (wall <= kUndisturbedWall * cpu)
    return rates.has_peaks() ? "" : "other programs had the cores whenever the peak was measured, so MFU is not known; calibrate "
                                    "again when nothing else runs";
  return fmt::format(
      "other programs had the cores as well: steps took {:.0f} % longer than they computed, and waits of ranks and what "
      "several threads take are too long by that; calibrate again when nothing else runs",
      100 * (wall / cpu - 1));
}

}  // namespace trident
