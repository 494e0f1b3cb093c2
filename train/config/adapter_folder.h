// Reads from the PEFT folder of adapter.init_from which adapters a run has.
#pragma once

#include <string_view>

#include "core/function_ref.h"
#include "train/config/train_config.h"

namespace trident {

// Sets the adapter block to what the folder's adapter_config.json says; its modules get their whole names. `given`: whether
// somebody gave a key, which then must say the same. Where the folder is gone, keys that were given stay: a run that goes on
// needs no more.
// ConfigError naming both for a key that says otherwise, and for what PEFT trains and Trident does not, and where nothing
// says the keys; as read_peft_config().
void take_adapter_folder(TrainConfig& config, FunctionRef<bool(std::string_view key)> given);

}  // namespace trident
