#include "tests/support/trainer_checkpoints.h"

#include <iostream>

#include "checkpoint/checkpoint_folder.h"
#include "core/check.h"

namespace trident::testing {

RunInputs TrainerCheckpoints::inputs_for(const RankTrainer& trainer, const TrainerCheckpointOptions& options) {
  RunInputs inputs;
  inputs.plan = trainer.plan();
  CheckpointConfig& c = inputs.plan.config.checkpoint;
  c.dir = options.to.empty() ? options.from.substr(0, options.from.rfind('/')) : options.to;
  if (!options.to.empty()) c.every = {.steps = 1, .at_end = true};
  c.resume = parse_resume_from(options.from.empty() ? "never" : options.from);
  c.staging.reset();
  if (options.staging_megabytes) c.staging = *options.staging_megabytes;
  if (!options.from.empty()) inputs.resume = Resume{{options.from, open_manifest(options.from)}};
  return inputs;
}

TrainerCheckpoints::TrainerCheckpoints(RankTrainer& trainer, const TrainerCheckpointOptions& options)
    : trainer_(trainer),
      inputs_(inputs_for(trainer, options)),
      sink_(options.warnings != nullptr ? *options.warnings : std::cerr),
      logger_(sink_, trainer.context().rank()),
      log_errors_(OnError::kContinue, logger_),
      say_([this](const std::string& line) { said_.push_back(line); }),
      checkpoints_(inputs_, trainer, logger_, log_errors_) {
  const bool resumed = checkpoints_.begin(say_).has_value();
  TRIDENT_CHECK(resumed == !options.from.empty(), "going on from \"{}\"", options.from);
}

void TrainerCheckpoints::start_saving() {
  const TrainerPosition position = trainer_.position();
  TrainingState state;
  state.updates = position.updates;
  state.batches = position.batches;
  state.position = position.position;
  state.loss_scale = position.loss_scale.scale;
  checkpoints_.save(state, say_);
}

bool TrainerCheckpoints::finish() {
  checkpoints_.finish(say_);
  return checkpoints_.committed_step() == trainer_.position().updates;
}

void go_on_and_save(RankTrainer& trainer, const std::string& from, const std::string& to) {
  TrainerCheckpoints checkpoints(trainer, {.from = from, .to = to});
  if (to.empty()) return;
  checkpoints.start_saving();
  TRIDENT_CHECK(checkpoints.finish(), "no checkpoint in {}", to);
}

}  // namespace trident::testing
