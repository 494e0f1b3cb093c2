#include "planner/study/study.h"

#include <cstdint>
#include <utility>

#include "core/int_math.h"
#include "planner/predict/cluster_forecast.h"
#include "train/launch/prepare_run.h"
#include "train/run/zero_cost.h"

namespace trident {
namespace {

// How often a unit is gathered and reduced over dp in a step, on average over all units of all stages.
void count_collectives(const RunPlan& plan, StudyRow& row) {
  if (plan.step_spec.data_parallel == 1) return;  // with nobody
  double units = 0;
  for (const StepProgram& program : plan.step_programs) {
    units += static_cast<double>(program.units.size());
    for (const Instruction& i : program.instructions) {
      row.gathers += i.kind == InstructionKind::kGather ? 1 : 0;
      row.reductions += i.kind == InstructionKind::kReduceGradients ? 1 : 0;
    }
  }
  row.gathers /= units;
  row.reductions /= units;
}

void fill(const PointConfig& point, const RunPlan& plan, const Forecast& forecast, StudyRow& row) {
  row.gpus = point.gpus;
  row.replicas = point.replicas;
  row.micro_batches = plan.num_micro_batches;
  row.tokens = plan.tokens_per_step();
  row.seconds = forecast.price.seconds;
  row.parts = forecast.price.ranks[forecast.price.busiest()];
  row.bubble = forecast.price.bubble_over_ideal;
  row.bytes_sent = bytes_of_all_ranks(plan, forecast.stages);
  for (double& bytes : row.bytes_sent) bytes /= static_cast<double>(plan.world_size());
  count_collectives(plan, row);
}

void price_on_cluster(const Cluster& cluster, const PlanHardware& hardware, const PointConfig& point, StudyRow& row) {
  // config_of() refuses more than kMostGpus.
  check_cluster_size(cluster, checked_cast<int>(point.gpus), checked_cast<int>(point.gpus / point.replicas));
  const ClusterForecast plan = plan_on(hardware, point.config, 0);
  fill(point, plan.plan, plan.forecast, row);
  if (hardware.peak_flops > 0) row.mfu = plan.mfu;
  row.memory_bytes = plan.most().total();
  row.optimizer_bytes = plan.most().of(MemoryPartKind::kOptimizer);
  row.memory_there = static_cast<std::int64_t>(hardware.device_bytes);
  row.fits = plan.fits;
}

void price_on_processors(const PlanHardware& hardware, const PointConfig& point, StudyRow& row) {
  check_on_processors(point.config);
  const ClusterForecast plan = plan_on(hardware, point.config, 0);
  fill(point, plan.plan, plan.forecast, row);
  row.seconds = plan.seconds();
  row.parts = plan.parts;
  row.memory_bytes = plan.needed_bytes();
  row.memory_there = static_cast<std::int64_t>(hardware.device_bytes);
  row.fits = plan.fits;
}

}  // namespace

void check_on_processors(const TrainConfig& config) {
  if (config.device == AskedDevice::kCuda)
    throw ConfigError(
        "device = cuda: this is priced on processors; set device to \"cpu\", or name a cluster of GPUs with --cluster");
}

StudyHardware cluster_hardware(const Cluster& cluster) {
  return {cluster.name, "GPU", [cluster, hardware = hardware_of(cluster)](const PointConfig& point, StudyRow& row) {
            price_on_cluster(cluster, hardware, point, row);
          }};
}

StudyHardware processor_hardware(const CpuRates& rates) {
  return {fmt::format("processors, by {} ({} cores)", name_of_profile(rates), rates.cores), "rank",
          [hardware = hardware_of(rates)](const PointConfig& point, StudyRow& row) { price_on_processors(hardware, point, row); }};
}

StudyResult run_study(const StudySpec& spec, const StudyHardware& hardware, const ExecutePoint& execute,
                      const OnProgress& progress) {
  StudyResult result{.spec = spec,
                     .hardware = hardware.name,
                     .counted_as = hardware.counted_as,
                     .held = held_fixed(spec, hardware.counted_as),
                     .rows = {},
                     .causes = {}};
  std::vector<StudyPoint> points = points_of(spec);
  for (StudyPoint& point : points) {
    if (progress) progress(std::ssize(result.rows), std::ssize(points));
    StudyRow row;
    row.point = std::move(point);
    try {
      PointConfig chosen = config_of(spec, row.point);
      chosen.config = with_facts_of_files(std::move(chosen.config));
      hardware.price(chosen, row);
      if (execute) execute(chosen, row);
    } catch (const ConfigError& error) {
      row.reason = error.what();
    }
    result.rows.push_back(std::move(row));
  }
  compare_rows(result);
  result.causes = causes_of(result);
  return result;
}

}  // namespace trident
