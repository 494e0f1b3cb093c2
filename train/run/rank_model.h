// One rank's part of a model and what it takes to run all instructions but those of the update: memory, communicators, units and
// weights. RankTrainer adds an optimizer; RankEvaluator and generation add nothing.
//
// Whoever owns more memory books it in arena_plan() between construction and allocate().
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/shard_boxes.h"
#include "device/arena.h"
#include "device/device.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/zero/param_store.h"
#include "pipeline/cached_stage.h"
#include "pipeline/executor.h"
#include "pipeline/stage.h"
#include "train/plan/run_plan.h"

namespace trident {

class RankModel {
 public:
  RankModel(const RankModel&) = delete;  // handlers and communicators point into it
  RankModel& operator=(const RankModel&) = delete;

  // Collective over the world. Without training (plan.trains()) the rank holds weights alone, in the compute dtype. `board`, where
  // there is one, is told of every collective.
  RankModel(const RunPlan& plan, Device& device, std::unique_ptr<Communicator> world, StatusBoard* board,
            const OnDevice& on_device);

  ArenaPlan& arena_plan() { return arena_plan_; }
  const ArenaPlan& arena_plan() const { return arena_plan_; }
  // Collective. All memory, and in it the initial weights (RunPlan::trains()) or zeros. ConfigError when the ranks' plans together
  // are more than the machine has.
  void allocate();

  Device& device() { return device_; }
  ParallelContext& context() { return *context_; }
  const ParallelContext& context() const { return *context_; }
  Stage& stage() { return *stage_; }  // of a plan with programs
  const Stage& stage() const { return *stage_; }
  // Continues texts over the same weights, between steps; of a plan that says with what (RunPlan::generation).
  CachedStage& cached_stage() { return *cached_; }
  ParamStore& store() { return *store_; }
  const ParamStore& store() const { return *store_; }
  // All handlers are bound but those of the update, which are the trainer's.
  Executor& executor() { return executor_; }
  Arena& arena() { return *arena_; }
  const Arena& arena() const { return *arena_; }
  const RunPlan& plan() const { return plan_; }
  // One line each of what the user ought to know of the memory.
  std::span<const std::string> notes() const { return notes_; }

  // Every tensor rank of the last stage computes the same losses; this one reports them.
  bool reports_losses() const { return plan_.is_last(context_->coordinates().pipeline) && context_->coordinates().tensor == 0; }
  // Which part of the parameters this rank has.
  ShardHolder shard_holder();

  // Everything sent has arrived, everywhere. Before destruction.
  void drain();

 private:
  void check_memory();
  void make_arena();
  void bind_handlers();

  const RunPlan& plan_;
  Device& device_;
  ArenaPlan arena_plan_;
  std::unique_ptr<Arena> arena_;  // before the communicators: they and peers may use its memory as long as those live
  std::optional<ParallelContext> context_;  // made once the GPU's kernels are there
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<CachedStage> cached_;
  std::unique_ptr<ParamStore> store_;
  Executor executor_;
  std::vector<std::string> notes_;
};

}  // namespace trident
