// Ranks exchange these between steps, from any memory: small numbers and texts, whether to stop, and the sums of a line of the log.
// `stream` is Device::host_stream(): what is enqueued there is complete.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "parallel/communicator/communicator.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/grid/process_grid.h"
#include "train/log/step_times.h"

namespace trident {

// Collective. The sum or the maximum of the ranks' numbers, on every rank.
std::int64_t over_ranks(Communicator& world, Stream& stream, std::int64_t mine, ReduceOp op);
// Collective; on every rank.
Extremes extremes_of(Communicator& world, Stream& stream, double mine);
// Collective. The first rank for which `is` holds, or -1, on every rank.
int first_rank(Communicator& world, Stream& stream, bool is);

// Collective. On rank 0: every rank's text, by rank; empty elsewhere. Texts come up a binomial tree: a rank sends once and receives
// from at most log2 of the ranks, and holds the texts of those below it. For lines.
std::vector<std::string> gather_texts(Communicator& world, Stream& stream, const std::string& mine);

// Collective. The text of `root`, on every rank. For lines.
std::string broadcast_text(Communicator& world, Stream& stream, const std::string& mine, int root);

// Collective, on the device's host stream. On rank 0 `take` is called for each rank in order, itself first; its bytes live as long
// as the call. Each rank sends to rank 0 alone, which holds the bytes of one other rank at a time; the others wait for their turn.
// For what is too large to be held.
void gather_bytes(Communicator& world, Device& device, std::span<const std::byte> mine,
                  const std::function<void(int rank, std::span<const std::byte>)>& take);

// Collective. The sum of all ranks' times, on every rank; its mean() is that of a step and a rank.
StepTimes sum_over_ranks(const StepTimes& mine, Communicator& world, Stream& stream);
// Collective. Seconds of a mean step that a rank did not wait, over ranks.
Extremes busy_seconds(const StepTimes& mine, Communicator& world, Stream& stream);

// How long this rank has waited for its streams so far. `statistics`: RankTrainer::statistics_waited().
std::array<double, kNumWaitedFor> waited_for(ParallelContext& context, double statistics);

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
