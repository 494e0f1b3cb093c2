#include "pipeline/schedule/schedule_simulator.h"

#include <algorithm>

#include "core/at.h"
#include "core/check.h"

namespace trident {

ScheduleCosts uniform_costs(double forward, double backward_input, double backward_weight, double message) {
  const auto action = [=](int, const Action& a) {
    switch (a.kind) {
      case ActionKind::kForward: return forward;
      case ActionKind::kBackward: return backward_input + backward_weight;
      case ActionKind::kBackwardInput: return backward_input;
      case ActionKind::kBackwardWeight: return backward_weight;
    }
    return 0.0;
  };
  return {action, [=](int, int) { return message; }};
}

ScheduleTasks to_tasks(const Schedule& schedule, const ScheduleCosts& costs) {
  const int stages = schedule.num_virtual_stages(), m = schedule.num_micro_batches;
  const auto activation = [&](int stage, int mb) { return stage * m + mb; };            // output of F
  const auto gradient = [&](int stage, int mb) { return (stages + stage) * m + mb; };   // input gradient of B or I
  const auto transit = [&](int rank, int to_stage) {
    return schedule.rank_of(to_stage) == rank ? 0.0 : costs.message(rank, schedule.rank_of(to_stage));
  };

  ScheduleTasks tasks{{}, 2 * stages * m};
  for (int rank = 0; rank < schedule.num_ranks; ++rank) {
    auto& list = tasks.ranks.emplace_back();
    for (const Action& a : at(schedule.ranks, rank)) {
      Task task;
      task.seconds = costs.action(rank, a);
      if (a.kind == ActionKind::kForward) {
        if (a.virtual_stage > 0) task.waits[0] = activation(a.virtual_stage - 1, a.micro_batch);
        task.gives = activation(a.virtual_stage, a.micro_batch);
        if (a.virtual_stage + 1 < stages) task.transit = transit(rank, a.virtual_stage + 1);
      } else if (computes_input_gradient(a.kind)) {
        if (a.virtual_stage + 1 < stages) task.waits[0] = gradient(a.virtual_stage + 1, a.micro_batch);
        task.gives = gradient(a.virtual_stage, a.micro_batch);
        if (a.virtual_stage > 0) task.transit = transit(rank, a.virtual_stage - 1);
      }
      list.push_back(task);
    }
  }
  return tasks;
}

ScheduleTimeline simulate(const Schedule& schedule, const ScheduleCosts& costs) {
  return simulate(to_tasks(schedule, costs));
}

ScheduleTimeline simulate(const ScheduleTasks& tasks) {
  TaskTimeline times = run_tasks(tasks.ranks, tasks.num_tokens);
  TRIDENT_CHECK(times.complete(), "the schedule blocks; it was not checked");

  ScheduleTimeline timeline;
  timeline.ranks = std::move(times.ranks);
  for (const auto& rank : timeline.ranks) {
    if (rank.empty()) continue;
    timeline.makespan = std::max(timeline.makespan, rank.back().end);
    timeline.largest_span = std::max(timeline.largest_span, rank.back().end - rank.front().start);
    for (const TaskTimes& t : rank) timeline.mean_busy += t.end - t.start;
  }
  timeline.mean_busy /= static_cast<double>(timeline.ranks.size());
  return timeline;
}

InFlight max_in_flight(const Schedule& schedule, bool (*ends)(ActionKind)) {
  const int peak_of_inference = schedule.forward_only() ? 1 : 0;
  InFlight peak{std::vector<int>(static_cast<std::size_t>(schedule.num_virtual_stages()), peak_of_inference),
                std::vector<int>(static_cast<std::size_t>(schedule.num_ranks), peak_of_inference)};
  if (schedule.forward_only()) return peak;

  std::vector<int> now(peak.per_virtual_stage.size(), 0);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    int on_rank = 0;
    for (const Action& a : schedule.ranks[rank]) {
      const auto stage = static_cast<std::size_t>(a.virtual_stage);
      const int change = a.kind == ActionKind::kForward ? 1 : ends(a.kind) ? -1 : 0;
      now[stage] += change;
      on_rank += change;
      peak.per_virtual_stage[stage] = std::max(peak.per_virtual_stage[stage], now[stage]);
      peak.per_rank[rank] = std::max(peak.per_rank[rank], on_rank);
    }
  }
  return peak;
}

}  // namespace trident
