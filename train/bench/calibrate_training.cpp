#include "train/bench/calibrate_training.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "parallel/shared_memory/thread_world.h"
#include "train/bench/calibrate_models.h"
#include "train/bench/calibrate_ranks.h"
#include "train/bench/metered_device.h"
#include "train/bench/random_samples.h"
#include "train/run/rank_trainer.h"

namespace trident {
namespace {

// Least seconds by operation and bytes, of several steps.
using LeastSeconds = std::map<std::pair<std::string, double>, double>;

class LeastMeter final : public WorkListener {
 public:
  void start() { measures_ = true; }
  void add(const Work& one) override {
    if (one.kind == WorkKind::kProducts || one.kind == WorkKind::kAttention) return;
    const auto [at, added] = least_.try_emplace({std::string(one.operation), one.bytes}, one.seconds);
    if (!added) at->second = std::min(at->second, one.seconds);
  }
  const LeastSeconds& least() const { return least_; }

 private:
  LeastSeconds least_;
};

// What reading the clock twice takes.
double clock_seconds(double (*clock)()) {
  double least = 1;
  for (int i = 0; i < 1000; ++i) {
    const double before = clock();
    least = std::min(least, clock() - before);
  }
  return least;
}

// Points no closer than a third: each is the mean, in logarithms, of those near it.
LogTable curve_of(std::span<const std::pair<double, double>> points) {
  std::vector<double> sizes, seconds;
  for (std::size_t i = 0; i < points.size();) {
    double size = 0, time = 0;
    std::size_t end = i;
    for (; end < points.size() && points[end].first < 1.35 * points[i].first; ++end) {
      size += std::log(points[end].first);
      time += std::log(points[end].second);
    }
    const auto count = static_cast<double>(end - i);
    sizes.push_back(std::exp(size / count));
    seconds.push_back(std::exp(time / count));
    i = end;
  }
  fall_to_larger({sizes}, seconds);
  return {{sizes}, std::move(seconds), {1}};
}

void add_tables(const LeastSeconds& least, double clock, int threads, DType compute, const std::string& source, CpuRates& rates) {
  std::map<std::string, std::vector<std::pair<double, double>>> by_name;
  for (const auto& [key, seconds] : least)
    if (key.second > 0) by_name[key.first].emplace_back(key.second, std::max(seconds - clock, 1e-8));
  for (const auto& [name, points] : by_name) rates.operations.push_back({threads, compute, name, curve_of(points), source});
}

// One rank's trainer: steps with every operation measured.
void metered_steps(const RunPlan& plan, CpuDevice& device, std::unique_ptr<Communicator> world, double (*clock)(), int steps,
                   LeastMeter& meter) {
  const std::unique_ptr<Device> metered = make_metered_device(device, meter, clock);
  RankTrainer trainer(plan, *metered, std::move(world));
  const LoadSamples load = random_samples(plan.model.vocab_size, plan.config.batch.sequence);
  trainer.step(load);
  meter.start();
  for (int i = 0; i < steps; ++i) trainer.step(load);
  meter.stop();
  trainer.drain();
}

CpuDeviceOptions with_threads(int threads) {
  CpuDeviceOptions options;
  options.threads_per_rank = threads;
  return options;
}

}  // namespace

void measure_operations(const CalibrateOptions& options, int ranks, int threads, const std::string& source, CpuRates& rates) {
  double (*const clock)() = threads == 1 ? thread_cpu_seconds : monotonic_seconds;
  std::map<DType, LeastSeconds> least;
  std::mutex mutex;
  const auto collect = [&](DType compute, const LeastMeter& meter) {
    const std::scoped_lock lock(mutex);
    for (const auto& [key, seconds] : meter.least()) {
      const auto [at, added] = least[compute].try_emplace(key, seconds);
      if (!added) at->second = std::min(at->second, seconds);
    }
  };
  for (const TrainedModel& model : models_on_one_rank(options.largest)) {
    const RunPlan plan = plan_of(model, threads);
    on_measuring_ranks(ranks, threads, [&](const MeasuringRank& rank) {
      LeastMeter meter;
      ThreadWorld alone(1);
      CpuDevice device(alone.doorbell(0), with_threads(threads));
      rank.all.barrier();
      metered_steps(plan, device, alone.communicator(0, device.progress()), clock, options.steps, meter);
      collect(plan.compute, meter);
    });
  }
  for (const TrainedModel& model : models_on_ranks(options.largest)) {  // what only divided models do
    const RunPlan plan = plan_of(model, threads);
    ThreadWorld world(plan.world_size());
    run_thread_ranks(world, [&](int rank) {
      LeastMeter meter;
      CpuDevice device(world.doorbell(rank), with_threads(threads));
      metered_steps(plan, device, world.communicator(rank, device.progress()), clock, options.steps, meter);
      collect(plan.compute, meter);
    });
  }
  for (const auto& [compute, of_dtype] : least) add_tables(of_dtype, clock_seconds(clock), threads, compute, source, rates);
}

double step_cpu_seconds(const RunPlan& plan, int steps) {
  const int ranks = plan.world_size();
  ThreadWorld world(ranks);
  std::vector<double> of_ranks(static_cast<std::size_t>(ranks), 0);
  run_thread_ranks(world, [&](int rank) {
    CpuDevice device(world.doorbell(rank), with_threads(plan.threads_per_rank));
    RankTrainer trainer(plan, device, world.communicator(rank, device.progress()));
    const LoadSamples load = random_samples(plan.model.vocab_size, plan.config.batch.sequence);
    trainer.step(load);
    double least = 1e30;
    for (int i = 0; i < steps; ++i) {
      const double before = thread_cpu_seconds();
      trainer.step(load);
      least = std::min(least, thread_cpu_seconds() - before - trainer.batch_seconds());
    }
    of_ranks[static_cast<std::size_t>(rank)] = least;
    trainer.drain();
  });
  double sum = 0;
  for (const double seconds : of_ranks) sum += seconds;
  return sum / ranks;
}

}  // namespace trident
