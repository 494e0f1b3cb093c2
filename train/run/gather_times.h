// The times of all ranks brought together, and how long one waited.
#pragma once

#include <array>

#include "parallel/communicator/communicator.h"
#include "parallel/grid/parallel_context.h"
#include "train/log/step_times.h"
#include "train/run/gather_bytes.h"

namespace trident {

// Collective. The sum of all ranks' times, on every rank; its mean() is that of a step and a rank.
StepTimes sum_over_ranks(const StepTimes& mine, Communicator& world, Stream& stream);
// Collective. Seconds of a mean step that a rank did not wait, over ranks.
Extremes busy_seconds(const StepTimes& mine, Communicator& world, Stream& stream);

// How long this rank has waited for its streams so far.
std::array<double, kNumWaitedFor> waited_for(ParallelContext& context);

}  // namespace trident
