// Ranks exchange these between steps: whether to stop, and the sums of a line of the log.
#pragma once

#include <array>
#include <cstdint>

#include "parallel/communicator/communicator.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/grid/process_grid.h"
#include "train/log/step_times.h"
#include "train/run/gather_bytes.h"

namespace trident {

// Collective. The sum of all ranks' times, on every rank; its mean() is that of a step and a rank.
StepTimes sum_over_ranks(const StepTimes& mine, Communicator& world, Stream& stream);
// Collective. Seconds of a mean step that a rank did not wait, over ranks.
Extremes busy_seconds(const StepTimes& mine, Communicator& world, Stream& stream);

// How long this rank has waited for its streams so far.
std::array<double, kNumWaitedFor> waited_for(ParallelContext& context);

struct StopVote {
  int signal = 0;           // that asked to stop; 0: none
  bool time_is_up = false;  // of run.max_minutes
  bool busy = false;        // with its part of a checkpoint
};
// Collective. Signals reach ranks at different moments and clocks differ: the highest signal that any rank got, and whether any
// says that time is up or is busy.
StopVote agree_to_stop(Communicator& world, Stream& stream, const StopVote& mine);

// The numbers of a line of the log, of one rank or of all: bytes sent by axis are summed, the other numbers maximised.
struct LogTotals {
  std::array<double, kNumAxes> bytes{};
  std::int64_t planned_bytes = 0, granted_bytes = 0;  // of the arena
  std::int64_t save_nanoseconds = 0;                  // that checkpoints held training up since the last line
  StepTimes times;                                    // since the last line; of all ranks, of a mean step and rank
  Extremes busy = {};                                 // of all ranks
};
// Collective; on every rank.
LogTotals totals_for_log(Communicator& world, Stream& stream, const LogTotals& mine);

}  // namespace trident
