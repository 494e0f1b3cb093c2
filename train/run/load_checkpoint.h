// Going on from a checkpoint, from one rank's side.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "core/logging.h"
#include "train/run/rank_model.h"
#include "train/run/rank_trainer.h"
#include "train/run/run_inputs.h"

namespace trident {

using Say = std::function<void(const std::string& line)>;  // on rank 0, to who watches the run

struct LoadedCheckpoint {
  Resume resume;
  TrainConfig config;  // what goes on, adopt()ed to that checkpoint: inputs.plan.config, unless an older one took the newest's place
};

// Collective. Fills the trainer from the checkpoint that inputs.resume names, or from the newest older one that is whole, and says
// which are passed over; an older one is compared with the configuration and the data as the first was. What the storage refuses is
// tried again first. Without inputs.resume the weights come from inputs.initial, if that is there, and the run begins at step 1:
// nothing is returned. Frozen ones of `tensors`, the run's, get their hashes where a base has their values: the checkpoint's base,
// or what inputs.initial names. DataError where none is whole, NotPermitted where a rank may not read a file, ConfigError where the
// configuration does not fit it, or the base has other values than the checkpoint was written beside
// and checkpoint.allow does not list model.init_from, or loss.type is dpo.
std::optional<LoadedCheckpoint> load_checkpoint(const RunInputs& inputs, RankTrainer& trainer, const Logger& logger, const Say& say,
                                                std::vector<ManifestTensor>& tensors);

// Collective. Fills a model's weights from a checkpoint of that model and publishes them: rounded from the masters where the
// checkpoint has its weights in another format than the plan, unless it has no masters. `key` and `value`: what asks for it, for
// messages. All ranks throw what the first of them found: DataError, NotPermitted where it may not read a file, StorageError; and
// ConfigError where the checkpoint's base has other values than it was written beside. Returns the hashes of what lies in a base,
// and where the model trains of what is frozen; others are 0.
ContentHashes load_weights(const Resume& from, RankModel& model, const Logger& logger, std::string_view key,
                           std::string_view value);

// The same, but where `newest` was found as the newest of several and is damaged, the newest older one that is whole takes its
// place, if that is of the same model, and a warning says so. Returns the source of what was read.
Resume load_newest_weights(const Resume& newest, RankModel& model, const Logger& logger, std::string_view key,
                           std::string_view value);

}  // namespace trident
