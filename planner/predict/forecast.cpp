#include "planner/predict/forecast.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "core/at.h"
#include "planner/price/cpu_prices.h"
#include "planner/price/program_loops.h"

namespace trident {
namespace {

// The same layout with as few micro-batches as show what those in between repeat, if that is fewer.
std::optional<RunPlan> shortened(const RunPlan& plan) {
  // With windows of several micro-batches what a backward adds up depends on more than the turn before.
  if (!plan.trains() || plan.zero.grad_sync_every > 1) return std::nullopt;
  const int pipeline = plan.grid.degrees().pipeline;
  const int few =
      short_micro_batches(plan.config.parallel.schedule, pipeline, plan.zero.grad_sync_every, plan.num_micro_batches);
  if (few == plan.num_micro_batches) return std::nullopt;
  RunPlan shorter = plan;
  shorter.config.batch.global = few * plan.config.batch.micro * plan.grid.degrees().data;
  return with_micro_batch(std::move(shorter), plan.config.batch.micro);
}

// The record of `program` made of that of a shorter one, of which it is the same with some stretches more often. Nothing where it
// cannot be seen to be that.
std::optional<StepRecord> lengthened(StepRecord record, const StepProgram& shorter, const StepProgram& program, int turn,
                                     int more) {
  const ProgramWithoutReceives few = without_receives(shorter), all = without_receives(program);
  std::map<InstructionKind, std::int32_t> receives;  // the pass of each kind of them
  for (std::size_t at = 0; at < shorter.instructions.size(); ++at) {
    const Instruction& i = shorter.instructions[at];
    if (i.is_receive() && receives.try_emplace(i.kind, record.pass_of[at]).first->second != record.pass_of[at]) return std::nullopt;
  }
  std::vector<std::int32_t> passes;
  for (const std::int32_t place : few.order) passes.push_back(at(record.pass_of, place));
  const ProgramLoops loops = find_loops(few.program, passes, turn, more);
  if (loops.empty() || !is_unrolled(all.program, few.program, loops)) return std::nullopt;
  record.pass_of.clear();
  for (const Instruction& i : program.instructions) record.pass_of.push_back(i.is_receive() ? receives.at(i.kind) : 0);
  const std::vector<std::int32_t> from = unrolled(few.program, loops);
  for (std::size_t at = 0; at < from.size(); ++at) trident::at(record.pass_of, all.order[at]) = trident::at(passes, from[at]);
  return record;
}

}  // namespace

Forecast forecast_run(const RunPlan& plan, const WorkPrices& prices, Ops* oracle, DrySteps steps) {
  Forecast forecast;
  forecast.step = {plan.grid, plan.step_spec.overlap, plan.step_programs, {}};
  const auto recorded = [&](const RunPlan& it, int rank, DryRun& run) {
    return record_step(it, rank, oracle, DryWork::kStep, Interning::kOn, &run);
  };
  const std::optional<RunPlan> shorter = steps == DrySteps::kShort ? shortened(plan) : std::nullopt;
  for (int stage = 0; stage < plan.grid.degrees().pipeline; ++stage) {
    const int rank = plan.grid.rank({.pipeline = stage});
    const auto s = static_cast<std::size_t>(stage);
    DryRun run;
    std::optional<StepRecord> record;
    if (shorter) {
      const int more = plan.num_micro_batches - shorter->num_micro_batches;
      const int turn = loop_turn(plan.config.parallel.schedule, plan.grid.degrees().pipeline, plan.zero.grad_sync_every);
      record = lengthened(recorded(*shorter, rank, run), shorter->step_programs[s], plan.step_programs[s], turn, more);
      if (record) {
        run = dry_run(plan, rank, oracle, DryWork::kConstruct);
        run.bytes_sent = record->bytes_sent();
      }
    }
    if (!record) record = recorded(plan, rank, run);
    forecast.stages.push_back(std::move(run));
    forecast.step.records.push_back(std::move(*record));
  }
  forecast.price = price_step(forecast.step, prices);
  return forecast;
}

ProcessPlan forecast_on_processors_here(const RunPlan& plan, const CpuRates& rates, Forecast& forecast) {
  const CpuPrices prices(rates, {plan.world_size(), plan.threads_per_rank, plan.compute});
  ProcessPlan result;
  forecast = forecast_run(plan, prices, processor_here(plan).get());
  const int ranks_of_a_stage = plan.world_size() / plan.grid.degrees().pipeline;
  result.cpu_seconds = cpu_seconds_of_step(forecast.step.records, ranks_of_a_stage, prices);
  result.shares_cores = prices.shares_cores();
  result.step_seconds = forecast.price.seconds;
  if (result.shares_cores)
    result.step_seconds =
        std::max(result.cpu_seconds / rates.cores,
                 price_step(forecast.step, prices, prices.shared_cores(plan.grid.degrees().pipeline)).seconds);
  for (const DryRun& stage : forecast.stages) {
    result.arena_bytes += static_cast<double>(stage.arena.total_bytes()) * ranks_of_a_stage;
    result.staging_bytes += static_cast<double>(stage.staging) * ranks_of_a_stage;
  }
  result.resident_bytes = prices.resident_bytes(result.arena_bytes, plan.world_size()) + result.staging_bytes;
  return result;
}

}  // namespace trident
