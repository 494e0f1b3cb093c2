// When every action of a schedule runs, given what actions and messages cost.
#pragma once

#include <functional>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/schedule/task_engine.h"

namespace trident {

struct ScheduleCosts {
  std::function<double(int rank, const Action&)> action;      // seconds
  std::function<double(int src_rank, int dst_rank)> message;  // seconds from the end of an action to its output at another rank
};

// The same for every rank: F = forward, I = backward_input, W = backward_weight, B = I + W.
ScheduleCosts uniform_costs(double forward, double backward_input, double backward_weight, double message = 0);

struct ScheduleTimeline {
  std::vector<std::vector<TaskTimes>> ranks;  // one entry per action of the schedule
  double makespan = 0;                        // end of the last action
  double largest_span = 0;                    // the longest time from a rank's first start to its last end
  double mean_busy = 0;                       // seconds of work, mean over ranks

  // Two definitions are in use: idle time over ideal time (Megatron-LM), and over total time (Zero Bubble). With equal stages:
  // (p-1)/m and (p-1)/(m+p-1) for 1F1B. Stages that cost differently count as idle where they wait for the slowest.
  double bubble_over_ideal() const { return (largest_span - mean_busy) / mean_busy; }
  double bubble_rate() const { return (largest_span - mean_busy) / largest_span; }
};

// Throws InternalError if the schedule blocks.
ScheduleTimeline simulate(const Schedule& schedule, const ScheduleCosts& costs);

// How many micro-batches hold activations at once: from a forward to the backward (B or W, or B or I) of the same virtual stage.
// A property of each rank's order alone. Forward-only schedules hold one.
struct InFlight {
  std::vector<int> per_virtual_stage;
  std::vector<int> per_rank;  // peak of the sum over the rank's virtual stages
};
InFlight max_in_flight(const Schedule& schedule, bool (*ends)(ActionKind) = computes_weight_gradient);

// The schedule as tasks (token = output of an action), which others may place differently before they are simulated.
struct ScheduleTasks {
  std::vector<std::vector<Task>> ranks;
  int num_tokens = 0;
};
ScheduleTasks to_tasks(const Schedule& schedule, const ScheduleCosts& costs);
ScheduleTimeline simulate(const ScheduleTasks& tasks);  // as above

}  // namespace trident
