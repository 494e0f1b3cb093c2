#include "train/run/rank_evaluator.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace trident {

RankEvaluator::RankEvaluator(const RunPlan& plan, Device& device, std::unique_ptr<Communicator> world, StatusBoard* board,
                             const OnDevice& on_device)
    : plan_(plan),
      model_(plan, device, std::move(world), board, on_device),
      buffers_(plan, device, model_.context().coordinates().pipeline, LossDetail::kOfTokens, model_.arena_plan()) {
  TRIDENT_CHECK(!plan.trains(), "a plan with training is to evaluate alone");
  model_.allocate();
  buffers_.bind(model_.arena());
  found_.resize(static_cast<std::size_t>(2 * plan.tokens_per_step()));
  for (MicroBatch& mb : buffers_.micro_batches()) mb.training = false;
}

std::span<const float> RankEvaluator::losses(const LoadSamples& load, std::int64_t batch,
                                              const BatchBuffers::SampleTokens& tokens) {
  ParallelContext& context = model_.context();
  const StepProgram& program = plan_.eval_program(context.rank());
  const RangeScope range(model_.device().ranges(), "evaluation");
  const BatchSlicing slicing{plan_.config.batch.global, plan_.config.batch.micro, plan_.grid.degrees().data};
  buffers_.load(load, batch, slicing, context.coordinates().data);
  buffers_.set_positions(tokens, model_.stage().constants(), batch, slicing, context.coordinates().data);
  model_.stage().set_micro_batches(buffers_.micro_batches(), program);
  model_.executor().run(program, times_);
  std::fill(found_.begin(), found_.end(), 0.0f);
  const std::size_t half = found_.size() / 2;
  if (model_.reports_losses()) {
    collect(slicing, buffers_.read_token_losses(), std::span(found_).first(half));
    collect(slicing, buffers_.read_target_logits(), std::span(found_).subspan(half));
  }
  // Every element is one rank's, the others' are 0: the sum is exact.
  const TensorView all(found_.data(), DType::kF32, {std::ssize(found_)});
  context.world().all_reduce(context.host_stream(), all, ReduceOp::kSum);
  return std::span(found_).first(half);
}

void RankEvaluator::collect(const BatchSlicing& slicing, std::span<const float> mine, std::span<float> into) {
  if (mine.empty()) return;  // a dry device has no bytes
  const std::int64_t b = slicing.micro, t = plan_.config.batch.sequence;
  for (std::int64_t k = 0; k < plan_.num_micro_batches; ++k) {
    const std::int64_t first = slicing.first_sample(0, k, model_.context().coordinates().data);
    for (std::int64_t s = 0; s < t; ++s)
      for (std::int64_t i = 0; i < b; ++i)
        into[static_cast<std::size_t>((first + i) * t + s)] = mine[static_cast<std::size_t>((k * t + s) * b + i)];
  }
}

}  // namespace trident
