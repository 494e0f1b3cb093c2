// Rotary embedding in a Hugging Face configuration, in the dialects of transformers 4 (rope_theta, rope_scaling) and 5
// (rope_parameters).
#pragma once

#include <cstdint>

#include "model/config/hf_reader.h"
#include "model/config/model_config.h"

namespace trident {

// `family`, `max_positions` have been read. Features that this program lacks are refused by key (ConfigError).
RopeConfig read_hf_rope(HfReader& reader, ModelFamily family, std::int64_t max_positions);

}  // namespace trident
