// What the option table says to people and editors.
#pragma once

#include <string>

#include "core/json_reader.h"
#include "train/option_values.h"
#include "train/train_config.h"

namespace trident {

// One line or two per option, for `trident train --help`.
std::string options_help();

// docs/configuration.md.
std::string options_markdown();

// JSON Schema, draft-07, for editors: types, ranges, choices, defaults, descriptions.
JsonValue options_schema();

// The resolved configuration with a comment after each key: where its value comes from. parse_train_config reads it back.
std::string config_with_origins(const TrainConfig& config, const OptionValues& values);

}  // namespace trident
