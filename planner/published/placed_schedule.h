// A schedule whose virtual stages may lie on any rank, and when its passes run.
//
// Schedule (pipeline/schedule/schedule.h) puts virtual stage s on rank s mod p, which is what the trainer executes. V-shaped
// schedules put the second half of the stages on the ranks in reverse: rank r has stages r and 2p-1-r.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/schedule/schedule_simulator.h"

namespace trident {

struct PlacedSchedule {
  Schedule schedule;               // of each rank its actions; rank_of() and chunk_of() hold for the usual placement alone
  std::vector<int> rank_of_stage;  // by virtual stage
};

PlacedSchedule usual_placement(Schedule schedule);
// p ranks with two stages each.
std::vector<int> v_placement(int num_ranks);

// Seconds of one virtual stage's passes, and of a message from it to another rank: from the end of a pass to the moment when its
// result is there. A whole backward takes backward_input + backward_weight.
struct PassTimes {
  double forward = 0, backward_input = 0, backward_weight = 0;
  double message = 0;
};

// Holds the times of each virtual stage: alike on all, or one by one.
class StageTimes {
 public:
  StageTimes(const PassTimes& alike) : times_{alike} {}
  StageTimes(std::vector<PassTimes> by_stage) : times_(std::move(by_stage)) {}
  const PassTimes& operator[](int stage) const { return times_[times_.size() == 1 ? 0 : static_cast<std::size_t>(stage)]; }

 private:
  std::vector<PassTimes> times_;
};

// Messages occupy no rank. Throws InternalError if the schedule blocks.
ScheduleTimeline simulate(const PlacedSchedule& placed, const StageTimes& times);

// The most that any rank holds at once, in units of one micro-batch's activations of one virtual stage: from the forward on; what a
// weight gradient does not need, 1 - `weight_share`, until the input gradient, the rest until the weight gradient.
double peak_activations(const Schedule& schedule, double weight_share = 1);

}  // namespace trident
