// The name of a pipeline schedule in a published table is read word by word.
#pragma once

#include <string>
#include <string_view>

#include "planner/published/simulated_schedules.h"

namespace trident {

struct ScheduleWords {
  SimulatedKind order = SimulatedKind::k1f1b;  // interleaved where there are several chunks on a rank
  bool interleaved = false;         // said, so that a rank has several stages
  bool waits_for_all = false;       // the norm of all gradients ends the step of a zero-bubble order
  bool blocks_by_cost = false;      // blocks moved away from the stages that hold the vocabulary
  bool vocabulary_divided = false;  // embedding and head over all stages
  double more_in_flight = 0;        // micro-batches beyond those of the order
  double in_flight_factor = 1;
  std::string unknown;  // the first word that is not known, or names another order beside one; empty: all are
};

// "ZB-2p + all-reduce optimizer sync", "1F1B vocab-1", "V-Half", "ZBV"; letters' case does not count, nor do dashes. No words: one
// forward, one backward.
ScheduleWords read_schedule_words(std::string_view name);

}  // namespace trident
