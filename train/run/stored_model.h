// The model of a run that no file says: its weights come from a checkpoint, or its file or folder of Hugging Face's form is gone
// since it began.
#pragma once

#include <string>
#include <vector>

#include "train/config/train_config.h"

namespace trident {

// `settings` as they are while the file or folder that says the model of the configuration is there (model.hf_config, or
// model.init_from alone). Else with the model's keys of the checkpoint that the run would go on from among them, so that the same
// command goes on, or those of the checkpoint in model.init_from; without such a checkpoint as they are, and load_train_config()
// says what is gone. ConfigError as that.
std::vector<std::string> with_stored_model(const std::string& file, const std::vector<std::string>& settings);
// The same of what files say.
std::vector<std::string> with_stored_model(OptionValues values, const std::vector<std::string>& settings);
// Takes into `values` what a plan is made of: with_stored_model(). No plan depends on how long the run is, nor on the data beyond
// what files say that are there: neither has to be given.
void take_to_plan(OptionValues& values, const std::vector<std::string>& settings);
// The configuration of these values.
TrainConfig config_to_plan(OptionValues& values, const std::vector<std::string>& settings);

}  // namespace trident
