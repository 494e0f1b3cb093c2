// A run's reaction to batches that make no update: gradients that are not finite, no target that counts.
#pragma once

#include <cstdint>
#include <string>

#include "core/dtype.h"
#include "core/logging.h"
#include "parallel/communicator/communicator.h"
#include "train/plan/run_plan.h"
#include "train/run/rank_trainer.h"

namespace trident {

inline constexpr int kMaxSkippedInARow = 10;  // after as many batches without an update the run has no future

// Collective. The first rank that has something to name says so for all.
// `in_a_row`: batches without an update, this one among them.
void warn_of_non_finite(Communicator& world, Stream& stream, const StepResult& result, std::int64_t batch, int in_a_row,
                        const Logger& logger);

// Rank 0 says that no target of the last batch before `position` counts.
void warn_of_no_targets(Communicator& world, const TrainConfig& config, const TrainerPosition& position, const Logger& logger);

// A scale that changed; `updates`: made so far. `growth_interval`: of the scaler.
std::string loss_scale_line(const StepResult& result, DType compute, std::int64_t updates, std::int64_t growth_interval);

// Collective: no rank ends the job before the rank that names the last gradient has done so.
[[noreturn]] void refuse_to_go_on(Communicator& world, const RunPlan& plan, const StepResult& result, std::int64_t updates);

}  // namespace trident
