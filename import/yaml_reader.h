// YAML text to values with places, typed as the loader of the system that a file is of types them (yaml-cpp parses).
#pragma once

#include <cstdint>
#include <string_view>

#include "core/json_reader.h"

namespace trident {

enum class YamlTyping : std::uint8_t {
  kPyYaml,    // YAML 1.1 as PyYAML 6's SafeLoader: on is true, 010 is 8, 1e-5 a text, 1.0e-5 a number; dates and 1:30 are texts
  kOmegaConf  // the same, but 1e-5 is a number, and a text ${a.b} alone is the scalar of that path
};

// The value of the one document in `text`, which check_foreign_text() accepts; null where there is none. Every message begins
// "<source>:<line>:<column>: ". The place of a member is that of its key, of an item of a list its own. Throws ConfigError:
// malformed text, several documents, duplicate keys, keys that are no texts, tags but str and float, numbers beyond 64 bits, and
// more than 64 levels or 100,000 values after aliases and merge keys are expanded.
JsonValue read_yaml(std::string_view text, std::string_view source, YamlTyping typing);

}  // namespace trident
