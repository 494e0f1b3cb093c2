#include "pipeline/schedule/step_simulator.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/check.h"
#include "pipeline/schedule/step_waits.h"

namespace trident {
namespace {

// Every instruction is a task that gives the token of its number, of `num_tokens`.
std::vector<std::vector<Task>> tasks_of(const std::vector<StepProgram>& programs, const StepCosts& costs, int& num_tokens) {
  const StepWaits waits = find_waits(programs);
  std::vector<std::vector<Task>> tasks;
  for (const StepProgram& program : programs) {
    auto& list = tasks.emplace_back();
    list.reserve(program.instructions.size());
    for (std::size_t at = 0; at < program.instructions.size(); ++at) {
      const Instruction& i = program.instructions[at];
      const StepWaits::Of& of = waits.ranks[tasks.size() - 1][at];
      Task task{.seconds = costs.instruction(program.rank, at, i)};
      task.waits = {of.send, of.gather, of.reduction};
      task.gives = num_tokens++;
      task.background = of.overlaps && costs.overlap;
      if (i.is_send()) task.transit = costs.message(program.rank, i.peer);
      task.barrier = of.barrier;
      list.push_back(task);
    }
  }
  return tasks;
}

double mean(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()); }

}  // namespace

double StepTimeline::bubble_over_ideal() const { return (pipeline_span - mean(compute)) / mean(compute); }

StepTimeline simulate(const std::vector<StepProgram>& programs, const StepCosts& costs) {
  int num_tokens = 0;
  const std::vector<std::vector<Task>> tasks = tasks_of(programs, costs, num_tokens);
  TaskTimeline times = run_tasks(tasks, num_tokens, {2, static_cast<int>(programs.size())});
  TRIDENT_CHECK(times.complete(), "the step programs block; they were not checked");

  StepTimeline timeline;
  timeline.ranks = std::move(times.ranks);
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    double busy = 0, last = 0;
    std::optional<double> first;
    for (std::size_t at = 0; at < programs[rank].instructions.size(); ++at) {
      const TaskTimes t = timeline.ranks[rank][at];
      timeline.makespan = std::max(timeline.makespan, t.end);
      if (!programs[rank].instructions[at].is_compute()) continue;
      if (!first) first = t.start;
      busy += t.end - t.start;
      last = t.end;
    }
    timeline.compute.push_back(busy);
    timeline.pipeline_span = std::max(timeline.pipeline_span, last - first.value_or(0));
  }
  return timeline;
}

}  // namespace trident
