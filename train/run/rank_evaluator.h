// One rank of an evaluation: weights, and forwards that leave a loss for every token. No gradients, no optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "train/run/batch_buffers.h"
#include "train/run/rank_model.h"

namespace trident {

class RankEvaluator {
 public:
  // Collective over the world. `plan`: of forward_only(). Plans and allocates all memory; the weights are 0 until load_weights()
  // (train/run/load_checkpoint.h) or another reader has written the shards and published them. ConfigError when the ranks' plans
  // together are more than the machine has.
  RankEvaluator(const RunPlan& plan, Device& device, std::unique_ptr<Communicator> world, StatusBoard* board = nullptr,
                const OnDevice& on_device = {});

  // Collective. Global batch number `batch`, samples batch*G .. batch*G + G-1 as `load` has them, each of as many tokens as
  // `tokens` says (nothing: all of T): behind them lies padding, and longrope turns each by its own length. f32 [G, T], on every
  // rank: nats of each target, in the samples' order, 0 for targets that do not count. The same bits in every layout that has
  // the tensor ranks and the micro-batch of this one. Valid until the next call.
  std::span<const float> losses(const LoadSamples& load, std::int64_t batch, const BatchBuffers::SampleTokens& tokens = {});
  // LossOutputs::target_logits of the same targets, from the same call on.
  std::span<const float> target_logits() const { return std::span(found_).subspan(found_.size() / 2); }

  RankModel& model() { return model_; }
  const RankModel& model() const { return model_; }
  void drain() { model_.drain(); }

 private:
  void collect(const BatchSlicing& slicing, std::span<const float> mine, std::span<float> into);

  const RunPlan& plan_;
  RankModel model_;
  BatchBuffers buffers_;
  std::vector<InstructionTimes> times_;
  std::vector<float> found_;  // f32 [2, G, T]: losses, then logits of targets
};

}  // namespace trident
