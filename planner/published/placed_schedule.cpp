#include "planner/published/placed_schedule.h"

#include <algorithm>
#include <cstddef>

#include "core/at.h"

namespace trident {
namespace {

double seconds_of(const Action& action, const StageTimes& of_stages) {
  const PassTimes& times = of_stages[action.virtual_stage];
  switch (action.kind) {
    case ActionKind::kForward: return times.forward;
    case ActionKind::kBackward: return times.backward_input + times.backward_weight;
    case ActionKind::kBackwardInput: return times.backward_input;
    case ActionKind::kBackwardWeight: return times.backward_weight;
  }
  return 0;
}

}  // namespace

PlacedSchedule usual_placement(Schedule schedule) {
  PlacedSchedule placed{std::move(schedule), {}};
  for (int stage = 0; stage < placed.schedule.num_virtual_stages(); ++stage)
    placed.rank_of_stage.push_back(placed.schedule.rank_of(stage));
  return placed;
}

std::vector<int> v_placement(int num_ranks) {
  std::vector<int> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) ranks.push_back(rank);
  for (int rank = num_ranks - 1; rank >= 0; --rank) ranks.push_back(rank);
  return ranks;
}

ScheduleTimeline simulate(const PlacedSchedule& placed, const StageTimes& times) {
  const Schedule& schedule = placed.schedule;
  const auto seconds_of_action = [&](int, const Action& action) { return seconds_of(action, times); };
  ScheduleTasks tasks = to_tasks(schedule, {seconds_of_action, [](int, int) { return 0.0; }});
  const auto rank_of = [&](int stage) { return at(placed.rank_of_stage, stage); };
  double seconds = 0;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      Task& task = tasks.ranks[rank][i];
      seconds += task.seconds;
      if (action.kind == ActionKind::kBackwardWeight) continue;
      const int stage = action.virtual_stage, to = stage + (action.kind == ActionKind::kForward ? 1 : -1);
      if (to >= 0 && to < schedule.num_virtual_stages() && rank_of(to) != rank_of(stage)) task.transit = times[stage].message;
    }
  }
  ScheduleTimeline timeline = simulate(tasks);
  timeline.mean_busy = seconds / static_cast<double>(schedule.num_ranks);
  return timeline;
}

double peak_activations(const Schedule& schedule, double weight_share) {
  double peak = 0;
  for (const auto& rank : schedule.ranks) {
    // Counts, not a running sum of shares: nothing is left over by rounding.
    int whole = 0, for_weights = 0;
    for (const Action& action : rank) {
      if (action.kind == ActionKind::kForward) ++whole;
      if (computes_input_gradient(action.kind)) --whole, ++for_weights;
      if (computes_weight_gradient(action.kind)) --for_weights;
      peak = std::max(peak, whole + weight_share * for_weights);
    }
  }
  return peak;
}

}  // namespace trident
