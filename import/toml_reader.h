// TOML text to values with places (toml++ parses; its types stay inside).
#pragma once

#include <string_view>

#include "core/json_reader.h"

namespace trident {

// The tables of `text`, which check_foreign_text() accepts, as objects, members in the order of the text; `source` begins every
// message: "<source>:<line>:<column>: <why>". The place of a member is that of its key, of a table its first header. Throws
// ConfigError: malformed text, duplicate keys, dates, more than 64 levels or 100,000 values.
JsonValue read_toml(std::string_view text, std::string_view source);

}  // namespace trident
