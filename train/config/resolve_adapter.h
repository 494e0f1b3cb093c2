// The adapters that a configuration asks for.
#pragma once

#include <string>
#include <vector>

#include "core/adapter_spec.h"
#include "model/config/model_config.h"
#include "train/config/train_config.h"

namespace trident {

// The linear layers of the model's blocks, by Hugging Face's names, in the order of its state_dict().
std::vector<std::string> adaptable_modules(const ModelConfig& model);

// The modules that `adapter` targets, but those that train whole. ConfigError: a name that is none, with the nearest; none left.
AdapterSpec resolve_adapter(const AdapterConfig& adapter, const ModelConfig& model);

}  // namespace trident
