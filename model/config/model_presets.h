// Named architectures. A preset is the architecture part of the model's published config.json, read by the same code that reads
// users' files; ours (llama-1m, llama-15m, llama-60m) are written the same way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config/model_config.h"

namespace trident {

// All names, small to large within a family.
std::vector<std::string_view> model_preset_names();

// The preset's config.json text, without dropout, also by the names of published models ("gpt2-medium",
// "meta-llama/Llama-2-7b-hf") where their shapes are a preset's. An unknown name throws ConfigError "<where> = ...".
std::string model_preset_json(std::string_view name, std::string_view where);

// The preset, dropout 0.
ModelConfig model_preset(std::string_view name, std::string_view where);

}  // namespace trident
