// The simulator tells when the instructions of a step run.
//
// Where each rank has its own cores, times depend on other ranks through messages and barriers alone, so that no rank needs the
// others' clocks: ranks run one by one, each stops at a message that is not on its way yet and goes on when that is sent, which is
// O(instructions) without a queue of events. Where ranks share cores, the one that can go on first takes the core that is free
// first, instruction by instruction, which is O(instructions x (ranks + cores)).
#pragma once

#include <vector>

#include "pipeline/schedule/task_engine.h"
#include "planner/price/overlap_slowdown.h"
#include "planner/price/step_ops.h"
#include "planner/price/work_prices.h"

namespace trident {

// Where a rank's seconds went, beside what its computing takes alone.
struct RankTimeline {
  double end = 0;              // of everything on its own streams
  double data = 0;             // waiting for gathers and reductions, in line with them, slowed by them
  double message = 0;          // waiting for messages under way, and in line with an exchange
  double bubble = 0;           // waiting for others until `end`
  double update = 0;           // norm, update
  double busy = 0;             // computes, with what slows them
  double first = 0, last = 0;  // computes begin, have ended
};

struct SimulatedStep {
  double makespan = 0;
  std::vector<RankTimeline> ranks;
  // By rank and instruction, for ops that are not merged, if asked for: when an instruction occupies its stream, the computing one
  // or that of gathers and reductions; a send from its sending to its arrival; a receive and others that occupy nothing, the moment
  // when they are reached.
  std::vector<std::vector<TaskTimes>> spans;
};

struct SimulationSize {
  int virtual_stages = 1, micro_batches = 1;
  SharedCores cores = {};
};

// `ranks` by pipeline rank; virtual stage s is on rank s mod their number. kOn: ops made with it, without loops.
// Throws InternalError when ranks wait for each other.
SimulatedStep simulate(const std::vector<RankOps>& ranks, const SimulationSize& size, const OverlapSlowdown& slowdown,
                       Spans spans);

}  // namespace trident
