// Where two configurations differ, for messages.
#pragma once

#include <optional>
#include <string>

#include "core/json_reader.h"

namespace trident {

// A key path ("parallel.tensor") and both values as JSON text; "nothing" where one side lacks the key.
struct Difference {
  std::string path, a, b;
};

// The first one, in the order of `a`; nothing where they are equal.
std::optional<Difference> first_difference(const JsonValue& a, const JsonValue& b, const std::string& path = "");

}  // namespace trident
