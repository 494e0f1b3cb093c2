// When every instruction of a step runs: the same programs that the executor carries out, with measured or estimated times.
// Replay: feed each instruction's measured CPU time to get the bubble a machine with one core per rank would show.
#pragma once

#include <functional>
#include <vector>

#include "pipeline/schedule/step_program.h"
#include "pipeline/schedule/task_engine.h"

namespace trident {

struct StepCosts {
  // Seconds of instruction number `index` of `rank`. Sends and receives occupy the rank for this long, too (usually 0).
  std::function<double(int rank, std::size_t index, const Instruction&)> instruction;
  std::function<double(int src_rank, int dst_rank)> message;  // seconds from the send to the arrival
  bool overlap = true;  // StepProgramSpec::overlap of the programs
};

struct StepTimeline {
  std::vector<std::vector<TaskTimes>> ranks;  // one entry per instruction
  double makespan = 0;                        // end of the last instruction
  std::vector<double> compute;                // seconds of forwards and backwards, per rank
  double pipeline_span = 0;                   // largest time over the ranks from the first compute's start to the last one's end

  // The bubble of the forward and backward part alone, as in the literature, without the update. See ScheduleTimeline.
  double bubble_over_ideal() const;
};

// With costs.overlap, gathers and reductions run beside computes, one at a time per rank and in program order; a compute waits
// for the gather of its slot and for the reduction of the gradient buffer it writes. Without, they run in line. Sends never
// block. Tie exchange and norm start when all their ranks have arrived with everything before finished.
// Throws InternalError if the programs block: run check_step_programs first. O(instructions).
StepTimeline simulate(const std::vector<StepProgram>& programs, const StepCosts& costs);

}  // namespace trident
