#include "planner/bench/calibrate_training.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "core/at.h"
#include "core/clock.h"
#include "parallel/shared_memory/thread_world.h"
#include "planner/bench/calibrate_models.h"
#include "planner/bench/calibrate_ranks.h"
#include "planner/bench/calls_in_training.h"
#include "planner/bench/metered_device.h"
#include "planner/bench/random_samples.h"
#include "train/run/rank_trainer.h"

namespace trident {
namespace {

// The time of reading the clock twice.
double clock_seconds(double (*clock)()) {
  double least = 1;
  for (int i = 0; i < 1000; ++i) {
    const double before = clock();
    least = std::min(least, clock() - before);
  }
  return least;
}

void add_tables(std::span<const CallTimes> calls, double clock, int threads, DType compute, const std::string& source,
                CpuRates& rates) {
  std::map<std::string, std::vector<std::pair<double, double>>> by_name;
  for (const CallTimes& one : calls) {
    if (!std::holds_alternative<std::monostate>(one.shape) || one.bytes <= 0) continue;
    by_name[one.operation].emplace_back(one.bytes, std::max(typical_seconds(one.seconds, threads) - clock, 1e-8));
  }
  for (const auto& [name, points] : by_name) {
    auto [sizes, seconds] = merged(points);
    fall_to_larger({sizes}, seconds);
    rates.operations.push_back({threads, compute, name, LogTable({std::move(sizes)}, std::move(seconds), {1}), source});
  }
}

// The lower quartile by the clock, to which other programs only add; else the median.
double typical(std::vector<double> values, bool by_the_clock) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / (by_the_clock ? 4 : 2));
  std::ranges::nth_element(values, middle);
  return *middle;
}

// How many steps a model is trained with every operation measured, and as many without, after a step of `seconds`: `most`, or as
// many as about kSeconds are enough for, because slow processors would take minutes. All of its ranks ask with one `count`, 0 at
// first, and are told what the first of them to ask is told.
int num_steps_after(double seconds, int most, std::atomic<int>& count) {
  constexpr double kSeconds = 0.7;
  constexpr int kLeast = 3;
  const auto enough = static_cast<int>(std::min(kSeconds / (2 * std::max(seconds, 1e-6)), 1e6));
  int none = 0;
  count.compare_exchange_strong(none, std::clamp(enough, std::min(kLeast, most), most));
  return count;
}

// Times of a rank's steps: those with every operation measured and, in turn, those without.
struct RankSteps {
  std::vector<CallTimes> calls;
  double cpu = 0, wall = 0;  // of a step without, without its batch
  int steps = 0;
};

RankSteps trained(const RunPlan& plan, CpuDevice& device, std::unique_ptr<Communicator> world, double (*clock)(), int most,
                  std::atomic<int>& count) {
  CallMeter meter;
  const std::unique_ptr<Device> metered = make_metered_device(device, meter, clock);
  RankTrainer trainer(plan, *metered, std::move(world));
  const LoadSamples load = random_samples(plan.model.vocab_size, plan.config.batch.sequence);
  const double begin = monotonic_seconds();
  trainer.step(load);
  const int steps = num_steps_after(monotonic_seconds() - begin, most, count);
  std::vector<double> cpu, wall;
  for (int i = 0; i < steps; ++i) {
    const double cpu_before = thread_cpu_seconds(), wall_before = monotonic_seconds();
    trainer.step(load);
    cpu.push_back(thread_cpu_seconds() - cpu_before - trainer.batch_times().cpu);
    wall.push_back(monotonic_seconds() - wall_before - (trainer.batch_times().end - trainer.batch_times().start));
    meter.start();
    trainer.step(load);
    meter.stop();
  }
  trainer.drain();
  return {meter.calls(), typical(cpu, false), typical(wall, true), steps};
}

// Times of all ranks that trained `plan`; `calls` of all of them.
TrainedSteps steps_of(const RunPlan& plan, std::span<const RankSteps> ranks, double clock, int threads, CallMeter& calls) {
  TrainedSteps all{plan, 0, 0, 0};
  const double share = 1 / static_cast<double>(ranks.size());
  for (const RankSteps& rank : ranks) {
    all.cpu += share * rank.cpu;
    all.wall = std::max(all.wall, rank.wall);
    for (const CallTimes& one : rank.calls) {
      const double calls_of_a_step = static_cast<double>(one.seconds.size()) / rank.steps;
      all.operations += share * calls_of_a_step * (typical_seconds(one.seconds, threads) - clock);
      calls.add(one);
    }
  }
  return all;
}

// How much longer steps of ranks that wait for nobody take than their operations, one by one: teams of several threads are called
// from anew by what lies between operations.
double beyond_operations(std::span<const TrainedSteps> all, DType compute) {
  double logarithms = 0, models = 0;
  for (const TrainedSteps& one : all)
    if (one.plan.world_size() == 1 && one.plan.compute == compute && one.operations > 0)
      logarithms += std::log(one.wall / one.operations), models += 1;
  return models > 0 ? std::exp(logarithms / models) : 1;
}

void stretch(std::span<CallTimes> calls, double factor) {
  for (CallTimes& one : calls)
    for (double& seconds : one.seconds) seconds *= factor;
}

CpuDeviceOptions with_threads(int threads) {
  CpuDeviceOptions options;
  options.threads_per_rank = threads;
  return options;
}

}  // namespace

std::vector<TrainedSteps> measure_operations(const CalibrateOptions& options, int ranks, int threads, const std::string& source,
                                             CpuRates& rates) {
  double (*const clock)() = threads == 1 ? thread_cpu_seconds : monotonic_seconds;
  const double reading = clock_seconds(clock);
  std::map<DType, CallMeter> calls, of_divided;
  std::vector<TrainedSteps> all;
  for (const TrainedModel& model : models_on_one_rank(options.largest, options.every)) {
    options.check();
    const RunPlan plan = plan_of(model, threads);
    std::atomic<int> count{0};
    std::vector<RankSteps> steps(static_cast<std::size_t>(ranks));
    on_measuring_ranks(ranks, threads, [&](const MeasuringRank& rank) {
      ThreadWorld alone(1);
      CpuDevice device(alone.doorbell(0), with_threads(threads));
      rank.all.barrier();
      at(steps, rank.rank) = trained(plan, device, alone.communicator(0, device.progress()), clock, options.steps, count);
    });
    all.push_back(steps_of(plan, steps, reading, threads, calls[plan.compute]));
  }
  for (const TrainedModel& model : models_on_ranks(options.largest, options.every)) {  // what only divided models do
    options.check();
    const RunPlan plan = plan_of(model, threads);
    const int world_size = plan.world_size();
    ThreadWorld world(world_size);
    std::atomic<int> count{0};
    std::vector<RankSteps> steps(static_cast<std::size_t>(world_size));
    run_thread_ranks(world, [&](int rank) {
      CpuDeviceOptions own = with_threads(threads);
      own.first_core = core_for_rank(rank, world_size, threads);
      CpuDevice device(world.doorbell(rank), own);
      at(steps, rank) = trained(plan, device, world.communicator(rank, device.progress()), clock, options.steps, count);
    });
    all.push_back(steps_of(plan, steps, reading, threads, of_divided[plan.compute]));
  }
  for (const auto& [compute, meter] : of_divided)
    for (const CallTimes& one : calls_beside(calls[compute].calls(), meter.calls(), threads)) calls[compute].add(one);
  for (const auto& [compute, meter] : calls) {
    std::vector<CallTimes> of_dtype = meter.calls();
    if (threads > 1) stretch(of_dtype, beyond_operations(all, compute));
    fit_to_training(of_dtype, reading, threads, compute, rates);
    add_tables(of_dtype, reading, threads, compute, source, rates);
  }
  return all;
}

}  // namespace trident
