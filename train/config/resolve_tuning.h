// The parameters that a configuration trains.
#pragma once

#include <memory>

#include "core/tuning.h"
#include "model/config/model_config.h"
#include "train/config/train_config.h"

namespace trident {

// Says what train.only, train.freeze or adapters leave frozen of the model; null: nothing is frozen. A pattern
// is a regular expression (ECMAScript, without back-references, so that it takes no more than the square of a name's length) that a
// tensor's whole name matches. A tied head is the embedding under another name: either name is enough. ConfigError naming the key,
// the pattern and the nearest names.
std::shared_ptr<const Tuning> resolve_tuning(const TrainConfig& config, const ModelConfig& model);

}  // namespace trident
