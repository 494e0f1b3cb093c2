#include "planner/published/placed_schedule.h"

#include <algorithm>

#include "core/check.h"
#include "planner/published/instruction_graph.h"

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

// The instructions of a schedule, and which of them make a forward's output and a backward's input gradient.
class ScheduleGraph {
 public:
  ScheduleGraph(const PlacedSchedule& placed, const StageTimes& times) : placed_(placed), times_(times) {
    const auto outputs = static_cast<std::size_t>(placed.schedule.num_virtual_stages()) *
                         static_cast<std::size_t>(placed.schedule.num_micro_batches);
    forward_.assign(outputs, -1);
    gradient_.assign(outputs, -1);
    add_instructions();
    add_dependencies();
  }

  const InstructionGraph& graph() const { return graph_; }

 private:
  std::size_t index(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(placed_.schedule.num_micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }

  void add_instructions() {
    for (int rank = 0; rank < placed_.schedule.num_ranks; ++rank) {
      const int stream = graph_.add_stream(rank, StreamKind::kCompute);
      for (const Action& action : placed_.schedule.ranks[static_cast<std::size_t>(rank)]) {
        const int instruction = graph_.add_instruction(stream, seconds_of(action, times_));
        const std::size_t at = index(action.virtual_stage, action.micro_batch);
        if (action.kind == ActionKind::kForward) forward_[at] = instruction;
        if (computes_input_gradient(action.kind)) gradient_[at] = instruction;
      }
    }
  }

  void add_dependency(const std::vector<int>& outputs, int from_stage, int to_stage, int micro_batch, int after) {
    const int before = outputs[index(from_stage, micro_batch)];
    TRIDENT_CHECK(before >= 0, "micro-batch {} never passes virtual stage {}", micro_batch, from_stage);
    const auto rank_of = [&](int stage) { return placed_.rank_of_stage[static_cast<std::size_t>(stage)]; };
    graph_.add_dependency(before, after, rank_of(from_stage) == rank_of(to_stage) ? 0 : times_[from_stage].message);
  }

  void add_dependencies() {
    const int last = placed_.schedule.num_virtual_stages() - 1;
    int instruction = 0;
    for (const auto& rank : placed_.schedule.ranks)
      for (const auto& [kind, stage, micro_batch] : rank) {
        if (kind == ActionKind::kForward && stage > 0) add_dependency(forward_, stage - 1, stage, micro_batch, instruction);
        if (computes_input_gradient(kind) && stage < last) add_dependency(gradient_, stage + 1, stage, micro_batch, instruction);
        ++instruction;
      }
  }

  const PlacedSchedule& placed_;
  const StageTimes& times_;
  std::vector<int> forward_, gradient_;  // instructions
  InstructionGraph graph_;
};

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
  const ScheduleGraph graph(placed, times);
  const SimulatedTimes run = simulate(graph.graph());
  ScheduleTimeline timeline;
  std::size_t instruction = 0;
  for (const auto& actions : placed.schedule.ranks) {
    auto& rank = timeline.ranks.emplace_back();
    for (std::size_t i = 0; i < actions.size(); ++i, ++instruction) {
      rank.push_back({run.start[instruction], run.end[instruction]});
      timeline.mean_busy += seconds_of(actions[i], times);
    }
    if (rank.empty()) continue;
    timeline.makespan = std::max(timeline.makespan, rank.back().end);
    timeline.largest_span = std::max(timeline.largest_span, rank.back().end - rank.front().start);
  }
  timeline.mean_busy /= static_cast<double>(placed.schedule.num_ranks);
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
