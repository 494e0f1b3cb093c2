// The parameters that a configuration trains, and the adapters that it asks for.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/adapter_spec.h"
#include "core/function_ref.h"
#include "core/tuning.h"
#include "model/config/model_config.h"
#include "train/config/train_config.h"

namespace trident {

// Says what train.only, train.freeze or adapters leave frozen of the model; null: nothing is frozen. A pattern
// is a regular expression (ECMAScript, without back-references, so that it takes no more than the square of a name's length) that a
// tensor's whole name matches. A tied head is the embedding under another name: either name is enough. ConfigError naming the key,
// the pattern and the nearest names.
std::shared_ptr<const Tuning> resolve_tuning(const TrainConfig& config, const ModelConfig& model);

// Sets the adapter block to what the adapter_config.json of adapter.init_from says; its modules get their whole names. `given`:
// whether somebody gave a key, which then must say the same. Where the folder is gone, keys that were given stay: a run that goes
// on needs no more.
// ConfigError naming both for a key that says otherwise, and for what PEFT trains and Trident does not, and where nothing
// says the keys; as read_peft_config().
void take_adapter_folder(TrainConfig& config, FunctionRef<bool(std::string_view key)> given);

// The linear layers of the model's blocks, by Hugging Face's names, in the order of its state_dict().
std::vector<std::string> adaptable_modules(const ModelConfig& model);

// The modules that `adapter` targets, but those that train whole. ConfigError: a name that is none, with the nearest; none left.
AdapterSpec resolve_adapter(const AdapterConfig& adapter, const ModelConfig& model);

}  // namespace trident
