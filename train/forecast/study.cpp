#include "train/forecast/study.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <variant>

#include "model/model_stats.h"
#include "train/forecast/forecast.h"
#include "train/plan/machine.h"
#include "train/run/zero_cost.h"

namespace trident {
namespace {

// Outside of arenas: the driver's context, and channels of every communicator of more than one rank.
std::int64_t outside_bytes(const GpuRates& gpu, const StepRecord& record) {
  std::set<std::string> groups;
  for (const PassRecord& pass : record.passes) {
    for (const auto& call : pass.calls) {
      if (const auto* collective = std::get_if<RecordedCollective>(&call); collective != nullptr && collective->size > 1)
        groups.insert(collective->group);
    }
  }
  return static_cast<std::int64_t>(gpu.context_bytes + static_cast<double>(groups.size()) * gpu.communicator_bytes);
}

std::int64_t memory_of(const RunPlan& plan, const StudyHardware& hardware, const Forecast& forecast) {
  if (hardware.cluster == nullptr) {  // all ranks together
    std::int64_t sum = 0;
    for (const DryRun& stage : dry_stages_here(plan, DeviceKind::kCpu, DryWork::kConstruct))
      sum += stage.arena.total_bytes() * (plan.world_size() / plan.grid.degrees().pipeline);
    return sum;
  }
  std::int64_t most = 0;
  const std::vector<DryRun> stages = dry_stages_on_cards(plan, DryWork::kConstruct);
  for (std::size_t i = 0; i < stages.size(); ++i)
    most = std::max(most, stages[i].arena.total_bytes() + outside_bytes(hardware.cluster->gpu, forecast.step.records[i]));
  return most;
}

// How often a unit is gathered and reduced in a step, on average over all units of all stages.
void count_collectives(const RunPlan& plan, StudyRow& row) {
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
  if (plan.step_spec.data_parallel == 1) row.gathers = row.reductions = 0;  // with nobody
}

void price(const PointConfig& point, const StudyHardware& hardware, StudyRow& row) {
  const ModelConfig model = resolve_model(point.config);
  const RunPlan plan = settle_grad_sync(make_run_plan(point.config, model, 0, hardware.machine), hardware.machine);
  if (hardware.cluster != nullptr)
    check_cluster_size(*hardware.cluster, plan.world_size(), plan.world_size() / plan.grid.degrees().data);
  const Forecast forecast = forecast_run(plan, *hardware.prices, nullptr);
  row.gpus = point.gpus;
  row.replicas = point.replicas;
  row.micro_batches = plan.num_micro_batches;
  row.tokens = plan.tokens_per_step();
  row.seconds = forecast.price.seconds;
  row.parts = forecast.price.ranks[forecast.price.busiest()];
  row.bubble = forecast.price.bubble_over_ideal;
  if (hardware.peak_flops > 0)
    row.mfu = model_flops_per_token(model, point.config.batch.sequence) * static_cast<double>(row.tokens) /
              (row.seconds * static_cast<double>(row.gpus) * hardware.peak_flops);
  row.memory_bytes = memory_of(plan, hardware, forecast);
  row.memory_there = hardware.memory_bytes;
  row.fits = row.memory_there == 0 || row.memory_bytes <= row.memory_there;
  row.bytes_sent = bytes_of_all_ranks(plan, forecast.stages);
  for (double& bytes : row.bytes_sent) bytes /= static_cast<double>(plan.world_size());
  count_collectives(plan, row);
}

}  // namespace

StudyHardware hardware_of(const Cluster& cluster, const WorkPrices& prices) {
  StudyHardware hardware{cluster.name, &prices, kAnyMachine, cluster.gpu.peak_16bit, &cluster,
                         static_cast<std::int64_t>(cluster.gpu.device_bytes)};
  hardware.machine.device = DeviceKind::kCuda;
  hardware.machine.multiplies_fp16 = true;
  hardware.machine.description = cluster.name;
  hardware.machine.memory = {{cluster.gpu.name, {0}, hardware.memory_bytes}};
  return hardware;
}

StudyResult run_study(const StudySpec& spec, const StudyHardware& hardware) {
  StudyResult result{.spec = spec, .hardware = hardware.name, .held = held_fixed(spec), .rows = {}, .causes = {}};
  for (StudyPoint& point : points_of(spec)) {
    StudyRow row;
    row.point = std::move(point);
    try {
      price(config_of(spec, row.point), hardware, row);
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
