#include "planner/predict/dry_plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <variant>

#include "core/counted.h"
#include "core/json_by_name.h"
#include "core/number_text.h"
#include "infer/generate/eval_samples.h"
#include "model/config/model_stats.h"
#include "report/table.h"
#include "train/config/rank_count.h"
#include "train/plan/core_share.h"
#include "train/plan/machine.h"
#include "train/plan/preflight.h"
#include "train/plan/step_flops.h"
#include "train/plan/step_record.h"
#include "train/run/run_files.h"
#include "train/run/run_report.h"
#include "train/run/zero_cost.h"

namespace trident {
namespace {

bool is_large(const DryPlan& report) {
  return std::ranges::any_of(report.stages, [](const DryRun& stage) { return stage.arena.total_bytes() >= 1'000'000'000; });
}

// A row for each stage, and a column for each use of which any stage has some, in 80 columns; the unit is that of the largest.
Table memory_table(const DryPlan& report) {
  const bool large = is_large(report);
  const std::int64_t seen = large ? 500'000 : 50'000;  // less has no digit
  Table table{"", {{"stage"}}, {}, 0, 1};
  for (std::size_t i = 0; i < report.stages.size(); ++i) table.rows.push_back({fmt::format("{}", i)});
  const auto add = [&](std::string_view name, auto bytes_of) {
    table.columns.push_back({std::string(name)});
    for (std::size_t i = 0; i < report.stages.size(); ++i)
      table.rows[i].push_back(large ? fmt::format("{:.3f}", gigabytes(bytes_of(report.stages[i])))
                                    : fmt::format("{:.1f}", megabytes(bytes_of(report.stages[i]))));
  };
  for (const MemoryUse use : kMemoryUses) {
    const auto bytes_of = [use](const DryRun& stage) { return stage.arena.total_bytes(use); };
    if (std::ranges::any_of(report.stages, [&](const DryRun& stage) { return bytes_of(stage) >= seen; }))
      add(to_string(use), bytes_of);
  }
  add("all", [](const DryRun& stage) { return stage.arena.total_bytes(); });
  return table;
}

// "tp 3.214 GB, pp 87.348 MB" of the axes over which something is sent, of each of so many ranks.
std::string sizes_by_axis(const std::array<double, kNumAxes>& bytes, int ranks) {
  std::string text;
  for (std::size_t axis = 0; axis < bytes.size(); ++axis) {
    const double of_one = bytes[axis] / ranks;
    if (of_one == 0) continue;
    const auto [unit, name] = of_one >= 1e12 ? std::pair(1e12, "TB") : of_one >= 1e9 ? std::pair(1e9, "GB") : std::pair(1e6, "MB");
    text += fmt::format("{}{} {:.3f} {}", text.empty() ? "" : ", ", to_string(static_cast<Axis>(axis)), of_one / unit, name);
  }
  return text;
}

JsonValue to_json(const RecordedOperation& operation) {
  return JsonValue::Object{{"operation", operation.name}, {"flops", operation.flops}, {"bytes", operation.bytes}};
}

JsonValue to_json(const RecordedCollective& call) {
  return JsonValue::Object{
      {"collective", to_string(call.operation)}, {"group", call.group}, {"ranks", call.size}, {"bytes", call.operand_bytes}};
}

JsonValue to_json(const PassRecord& pass) {
  JsonValue::Array calls;
  for (const auto& call : pass.calls) calls.push_back(std::visit([](const auto& it) { return to_json(it); }, call));
  return JsonValue(std::move(calls));
}

}  // namespace

DryPlan plan_run(const TrainConfig& config, int ranks, CudaBackend& cuda) {
  const bool on_gpus = config.device == AskedDevice::kCuda || (config.device == AskedDevice::kAuto && !cuda.facts().gpus.empty());
  MachineFacts machine = kAnyMachine;
  if (on_gpus) {
    machine.device = DeviceKind::kCuda;
  } else {  // threads per rank as if all ranks were threads here, as trident train would have them
    const std::int64_t here = std::min<std::int64_t>(ranks > 0 ? ranks : ranks_of(config.parallel), kMaxThreadRanks);
    machine = cpu_machine_facts(static_cast<int>(here));
    machine.memory = kAnyMachine.memory;
  }
  const ModelConfig model = resolve_model(config);
  RunPlan plan = make_run_plan(config, model, ranks, machine);
  if (const auto samples = find_eval_samples(config, model)) plan.generation = samples->shapes();
  DryPlan planned{settle_grad_sync(std::move(plan), machine), {}, on_gpus ? Certainty::kMost : Certainty::kExact};
  std::erase(planned.plan.notes, threads_line(machine.core_share));  // of this machine's cores, which are not the job's
  if (!config.parallel.data && ranks == 0)
    planned.plan.notes.push_back(fmt::format("parallel.data is auto and is planned as 1, with {}; --ranks N plans it for N ranks",
                                             counted(planned.plan.world_size(), "rank")));
  planned.stages = on_gpus ? dry_stages_on_any(planned.plan, DeviceKind::kCuda, DryWork::kStep)
                           : dry_stages_here(planned.plan, machine.device, DryWork::kStep);
  return planned;
}

std::string heading_text(const RunPlan& plan) {
  std::string text = fmt::format("{}\n{}\n", model_line(plan), layout_line(plan));
  text += fmt::format("compute in {} ({}), {}\n", to_string(plan.compute), plan.compute_reason, to_string(plan.zero.preset));
  text += fmt::format("bubble by FLOPs alone (idle over ideal) {:.3f}\n", plan.predicted_bubble);
  for (const std::string& note : plan.notes) text += note + '\n';
  return text;
}

std::string holds_text(const RunPlan& plan) {
  std::string text;
  for (std::size_t stage = 0; stage < plan.step_programs.size(); ++stage)
    text += fmt::format("stage {}: {}\n", stage, units_text(plan, stage));
  return text;
}

std::string traffic_text(const DryPlan& report) {
  const std::array<double, kNumAxes> sent = bytes_of_all_ranks(report.plan, report.stages);
  const std::string of_all = sizes_by_axis(sent, 1);
  if (of_all.empty()) return "\nsent in a step: nothing\n";
  return fmt::format("\nsent in a step by all ranks: {}\nby a rank, on average: {}\n", of_all,
                     sizes_by_axis(sent, report.plan.world_size()));
}

std::string program_text(const RunPlan& plan) {
  std::string text =
      "\nA step of each pipeline rank (u unit, m micro-batch, s virtual stage; @ and g: where weights or a message, and "
      "gradients, lie,\n"
      "in blocks of 256 bytes; = overwrites gradients, += adds; ! the last reduction; < from and > to a pipeline rank):\n";
  for (const StepProgram& program : plan.step_programs) text += to_text(program);
  return text;
}

std::string to_text(const DryPlan& report, PlanDetail detail, std::size_t columns) {
  const RunPlan& plan = report.plan;
  std::string text = heading_text(plan);
  const bool exact = report.workspaces == Certainty::kExact;
  text += fmt::format("\n{} of one rank's tensors (trident plan cluster adds what a GPU holds besides){}:\n{}\n",
                      is_large(report) ? "GB" : "MB",
                      exact ? "" : "; workspaces of products and attention: the most that a GPU's take",
                      to_text(memory_table(report), columns));
  const auto fullest =
      std::ranges::max_element(report.stages, {}, [](const DryRun& stage) { return stage.arena.total_bytes(); });
  for (std::size_t i = 0; i < report.stages.size(); ++i)
    text += fmt::format("stage {} (first rank {}): {}\n", i, report.stages[i].rank, units_text(plan, i));
  text += fmt::format("stage {} is the fullest; --json has every tensor by name\n", fullest - report.stages.begin());
  text += traffic_text(report);
  return detail == PlanDetail::kProgram ? text + program_text(plan) : text;
}

JsonValue to_json(const DryPlan& report, PlanDetail detail) {
  const RunPlan& plan = report.plan;
  JsonValue out;
  out.set("ranks", plan.world_size());
  out.set("parameters", num_parameters(plan.model));
  out.set("compute", to_string(plan.compute));
  out.set("zero", to_string(plan.zero.preset));
  out.set("micro_batches", plan.num_micro_batches);
  out.set("bubble_over_ideal", plan.predicted_bubble);
  out.set("workspaces", report.workspaces == Certainty::kExact ? "exact" : "bound");
  JsonValue::Array stages;
  for (std::size_t i = 0; i < report.stages.size(); ++i) {
    const DryRun& run = report.stages[i];
    JsonValue stage;
    stage.set("stage", static_cast<std::int64_t>(i));
    stage.set("rank", run.rank);
    stage.set("holds", units_text(plan, i));
    stage.set("bytes", run.arena.total_bytes());
    stage.set("by_use", bytes_by_use(run.arena));
    stage.set("allocations", allocations_of(run.arena));
    if (detail == PlanDetail::kProgram) {
      JsonValue::Array instructions, passes, pass_of;
      for (const Instruction& instruction : plan.step_programs[i].instructions) instructions.emplace_back(to_string(instruction));
      const StepRecord record = record_step(plan, run.rank, nullptr, DryWork::kStep);
      for (const PassRecord& pass : record.passes) passes.push_back(to_json(pass));
      for (const std::int32_t pass : record.pass_of) pass_of.emplace_back(pass);
      stage.set("program", JsonValue(std::move(instructions)));
      stage.set("passes", JsonValue(std::move(passes)));
      stage.set("pass_of", JsonValue(std::move(pass_of)));
    }
    stages.push_back(std::move(stage));
  }
  out.set("stages", JsonValue(std::move(stages)));
  out.set("step_comm_bytes", json_by_name<Axis>(bytes_of_all_ranks(plan, report.stages)));
  return out;
}

}  // namespace trident
