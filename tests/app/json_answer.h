// Reads the answer of a program that was asked for JSON.
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "core/json_reader.h"

namespace trident {

inline JsonValue parsed(const std::string& text) {
  return parse_json(text, "a test",
                    {.comments = false, .max_bytes = 1 << 24, .max_depth = 16, .blame = ExitCode::kInternal});
}

// NaN, and a failed expectation, where there is none.
inline double number(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  EXPECT_TRUE(value != nullptr && value->is_number()) << key << " in " << to_json_text(object);
  return value == nullptr ? std::nan("") : value->as_number();
}

}  // namespace trident
