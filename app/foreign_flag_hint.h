// Guesses the meaning of a flag that `trident train` does not have, from other systems' flags and from spellings with hyphens.
#pragma once

#include <string>

#include "core/json_reader.h"

namespace trident {

// For "--tensor-model-parallel-size" (or "...=4") followed by "4": "say --set parallel.tensor=4". Knows keys with one or two
// hyphens before them and hyphens inside, what other systems call them (train/config/foreign_answers.h); also a key=value
// without --set. `next` is the argument after it, or "". Returns "" without an idea.
std::string foreign_flag_hint(const std::string& argument, const std::string& next);

// The system whose configuration this is, of the file `path`; "": ours, or nobody's that import knows.
std::string system_of_json(const JsonValue& root, const std::string& path);

}  // namespace trident
