// The model that a configuration names.
#pragma once

#include <optional>
#include <string>

#include "core/json_reader.h"
#include "model/config/model_config.h"
#include "train/config/train_config.h"

namespace trident {

// The model of model.preset, of the file that model.hf_config names, or of the keys; keys beside one of the first two replace its
// own. ConfigError, also for a file that cannot be read; DataError for one that is no JSON.
ModelConfig resolve_model(const TrainConfig& config);

// The keys that it is resolved from, as a config.json has them. Errors: as resolve_model(), for what cannot be read.
JsonValue model_keys(const TrainConfig& config);

// Resolves data.tokenizer = "auto" for a model: "gpt2" where its vocabulary is GPT-2's 50257 tokens, or for model_type gpt2 those
// filled up to at most 50304, as they are for speed; nothing for any other, of which nobody knows who made its tokens.
std::optional<std::string> tokenizer_of_vocabulary(const ModelConfig& model);

}  // namespace trident
