#include "train/run/non_finite.h"

#include <fmt/core.h>

#include "train/run/between_steps.h"

namespace trident {

void warn_of_non_finite(Communicator& world, Stream& stream, const StepResult& result, std::int64_t batch, int in_a_row,
                        const Logger& logger) {
  const bool is_one = !result.non_finite.empty();
  const int first = first_rank(world, stream, is_one);
  const std::int64_t ranks = over_ranks(world, stream, is_one ? 1 : 0, ReduceOp::kSum);
  if (world.rank() != first) return;
  logger.warning("gradient is not finite, no rank applies the update: {} (batch {}, {} of {} in a row){}", result.non_finite, batch,
                 in_a_row, kMaxSkippedInARow,
                 ranks == 1 ? "" : fmt::format(" (and parameters of {} more rank{})", ranks - 1, ranks == 2 ? "" : "s"));
}

void warn_of_no_targets(Communicator& world, const TrainConfig& config, const TrainerPosition& position, const Logger& logger) {
  if (world.rank() != 0) return;
  const std::string batch = fmt::format("global batch {}, samples {} to {}", position.batches,
                                        position.position - config.batch.global, position.position - 1);
  logger.warning("no target of the batch after update {} counts ({}), no rank applies an update: {}; {}", position.updates,
                 config.data.masked_by(), batch, config.data.masks_remedy());
}

std::string loss_scale_line(const StepResult& result, DType compute, std::int64_t updates, std::int64_t growth_interval) {
  return fmt::format(
      "loss scale {:.0f} -> {:.0f}: {}", result.loss_scale, result.next_loss_scale,
      result.applied ? fmt::format("{} steps without an overflow", growth_interval)
                     : fmt::format("gradients overflowed {}, the batch after update {} is skipped", to_string(compute), updates));
}

void refuse_to_go_on(Communicator& world, const RunPlan& plan, const StepResult& result, std::int64_t updates) {
  world.barrier();
  if (result.counted == 0)
    throw Error(ExitCode::kNoProgress,
                fmt::format("{} batches in a row made no update after update {}, the last one because none of its targets counts "
                            "({}); {}",
                            kMaxSkippedInARow, updates, plan.config.data.masked_by(), plan.config.data.masks_remedy()));
  const std::string what = fmt::format("{} batches in a row had non-finite gradients after update {}", kMaxSkippedInARow, updates);
  if (plan.compute != DType::kF16) throw Error(ExitCode::kNoProgress, what + "; lower optimizer.lr or look at the data");
  const bool fixed = plan.config.precision.loss_scale.kind == LossScale::Kind::kFixed;
  throw Error(ExitCode::kNoProgress,
              fmt::format("{} at loss scale {:.0f}, {}", what, result.loss_scale,
                          fixed ? "which is fixed; lower precision.loss_scale or set it to \"dynamic\""
                                : "the smallest; lower optimizer.lr, look at the data or set precision.compute to \"bf16\""));
}

}  // namespace trident
