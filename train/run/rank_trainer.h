// One rank's training: owns its memory, parameters, optimizer and part of the model, and carries out the step program.
//
// A step, top down: load the micro-batches -> Executor runs the rank's instructions -> GradNorm decides with all ranks whether and how
// far to step -> OptimizerStep per unit. docs/design/architecture.md walks through it with file names.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/save_plan.h"
#include "checkpoint/shard_boxes.h"
#include "data/sample_order.h"
#include "optim/loss_scaler.h"
#include "optim/lr_schedule.h"
#include "optim/sharded_optimizer.h"
#include "optim/step_statistics.h"
#include "train/log/step_times.h"
#include "train/plan/run_plan.h"
#include "train/run/batch_buffers.h"
#include "train/run/rank_model.h"

namespace trident {

struct StepResult {
  std::int64_t updates = 0;  // completed, this one included
  double loss = 0;           // mean nats per counted target of the global batch, or mean of its sequences' means, before the update
  // Targets of the global batch that count, where they are counted (RunPlan::counts_targets()). 0: nobody stepped.
  std::optional<std::int64_t> counted;
  std::optional<double> token_accuracy;  // the share of these that the model finds right, where TrainConfig::counts_correct()
  std::optional<PairRewards> rewards;  // of the global batch's pairs, with loss.type "dpo"
  double grad_norm = 0;      // unscaled, before clipping
  double lr = 0;
  double loss_scale = 1;       // that this step's loss was multiplied by
  double next_loss_scale = 1;  // the next step's
  bool applied = true;         // false: a gradient was not finite, or no target counted, and nobody stepped
  bool scale_can_shrink = false;  // not applied, but a smaller loss scale, now or soon, may help
  std::string non_finite;    // "rank 3: <tensor>" on a rank that holds such a gradient
};

struct EvalResult {
  double loss = 0;                        // mean nats per counted target; with loss.type "dpo" mean of the pairs
  std::int64_t counted = 0;               // targets
  std::optional<double> token_accuracy = {};   // as in StepResult
  std::optional<PairRewards> rewards = {};     // of the pairs
  std::optional<double> bytes_per_token = {};  // of those, if token_bytes was given
};

// Where training stands, beside the tensors.
struct TrainerPosition {
  std::int64_t updates = 0;  // completed
  std::int64_t batches = 0;  // tried
  std::int64_t position = 0;  // samples that they took: where the next one begins
  LossScaler::State loss_scale;
};

class RankTrainer {
 public:
  RankTrainer(const RankTrainer&) = delete;  // handlers and communicators point into it
  RankTrainer& operator=(const RankTrainer&) = delete;

  // Collective over the world. Plans and allocates all memory and draws the initial weights. ConfigError when the ranks' plans together
  // are more than the machine has. `board`, where there is one, is told of every collective.
  RankTrainer(const RunPlan& plan, Device& device, std::unique_ptr<Communicator> world, StatusBoard* board = nullptr, const OnDevice& on_device = {});

  // One global batch: the samples at positions batch*G .. batch*G + G-1, batch = 0, 1, ... counting up with every call.
  StepResult step(const LoadSamples& load);
  // The samples 0 .. samples - 1 of `load` in whole global batches, without an update; what fills up the last one does not count.
  // `token_bytes`: length of each token's text, or empty. `reference`: as set_reference() takes it, of the pairs that `load` has.
  EvalResult evaluate(const LoadSamples& load, std::int64_t samples, std::span<const std::int32_t> token_bytes,
                      std::span<const float> reference = {});
  // The reference's log-probabilities of every answer that is trained on, by SampleSpans::numbers.
  void set_reference(std::vector<float> reference) { reference_ = std::move(reference); }
  std::span<const float> reference() const { return reference_; }
  // The log-probabilities that the weights of now give to the samples 0 .. samples - 1 of `load`, in whole global batches: one
  // of each answer, by its number, on the rank that reports its losses; the others leave `into` alone. kOff: without adapters.
  enum class Adapters : std::uint8_t { kOn, kOff };
  void refer(const LoadSamples& load, std::int64_t samples, std::span<float> into, Adapters adapters = Adapters::kOn);
  // Everything sent has arrived, everywhere. Before destruction.
  void drain() { model_.drain(); }

  // Called when the gradients of a step are reduced, before the update: for tests and tools that look at them. They are multiplied by
  // the loss scale.
  void set_gradient_hook(std::function<void(const ParamStore&)> hook) { gradient_hook_ = std::move(hook); }

  // Called before the values of a unit's shards change: masters, weights, optimizer state.
  void set_update_hook(std::function<void(int unit)> hook) { update_hook_ = std::move(hook); }

  TrainerPosition position() const;
  // How the global batches of training are cut into samples.
  BatchSlicing slicing() const { return {plan_.config.batch.global, plan_.config.batch.micro, plan_.grid.degrees().data, sample_offset_}; }
  // Goes on from there, with values that were written into shard_tensors() or the store before. Between steps.
  void restore(const TrainerPosition& position);
  // In place of the configuration's, between steps.
  void set_lr_schedule(const LrSchedule& schedule) { lr_schedule_ = schedule; }
  // The values of store().shards(), in their order, which change in steps only.
  std::vector<ShardTensors> shard_tensors() const;
  // Which part of them this rank has.
  ShardHolder shard_holder() { return model_.shard_holder(); }
  // The optimizer's state of a shard, to be written between steps.
  std::vector<TensorView> optimizer_states(std::size_t shard) const { return optimizer_->states(shard); }
  // This rank's units in the order of their updates.
  std::vector<int> update_order() const;

  RankModel& model() { return model_; }
  Device& device() { return model_.device(); }
  ParallelContext& context() { return model_.context(); }
  const ParamStore& store() const { return model_.store(); }
  const LossScaler& loss_scaler() const { return loss_scaler_; }
  ParamStore& store() { return model_.store(); }  // between steps: to write masters and publish them
  const RunPlan& plan() const { return plan_; }
  const ArenaPlan& arena_plan() const { return model_.arena_plan(); }
  const Arena& arena() const { return model_.arena(); }
  // One line each of what the user ought to know of the memory, and of steps that learn nothing.
  std::vector<std::string> notes() const;
  // Times of every instruction of the last step.
  std::span<const InstructionTimes> instruction_times() const { return step_times_; }
  // Times of the last step's batch, which comes before the first instruction.
  const InstructionTimes& batch_times() const { return batch_times_; }
  // Goes by this rank's samples of the last step; called between that and an evaluation.
  BatchBuffers::Seen seen() const { return batch_buffers_.seen(); }
  // Times of its instructions by cause.
  const StepCauses& causes() const { return causes_; }
  double statistics_waited() const { return statistics_waited_; }  // seconds of all steps, for the other ranks' sums

 private:
  void bind_handlers();
  void load_batch(const LoadSamples& load, std::int64_t batch, bool training);
  std::int64_t sum_on_last(std::int64_t counted);
  void weigh_rows(std::int64_t counted, bool training);
  std::span<const std::int64_t> counts_here();
  void decide_update();
  double held_seconds();
  std::span<const double> read_losses();

  const RunPlan& plan_;
  RankModel model_;
  std::unique_ptr<ShardedOptimizer> optimizer_;
  StatisticsReducer statistics_;
  BatchBuffers batch_buffers_;
  std::vector<float> reference_;
  std::vector<InstructionTimes> step_times_, eval_times_;  // of the last step, the last evaluation
  InstructionTimes batch_times_;  // of the last step
  StepCauses causes_;
  double statistics_waited_ = 0;
  double held_before_ = 0;  // by the compute stream, before the step
  LrSchedule lr_schedule_;
  LossScaler loss_scaler_;  // of every rank, fed with what all agreed on: the same everywhere
  std::function<void(const ParamStore&)> gradient_hook_;
  std::function<void(int unit)> update_hook_;

  std::int64_t batches_ = 0, updates_ = 0;
  bool has_stepped_ = false;      // since it was made, wherever training goes on from
  std::int64_t sample_offset_ = 0;  // BatchSlicing::offset
  StepResult result_;             // of the step in progress
  std::array<std::int64_t, kMostCounts> counts_{};  // what this rank adds to those of the batch
  double update_scale_ = 1;       // clipping, and 1 / the loss scale
};

// The learning-rate schedule of a configuration; validated.
LrSchedule lr_schedule_of(const TrainConfig& config);

}  // namespace trident
