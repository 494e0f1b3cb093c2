// Reads what a run's records hold, where they hold it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"

namespace trident {

inline constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

inline double number(const JsonValue* value) { return value != nullptr && value->is_number() ? value->as_number() : kNone; }
inline double number(const JsonValue& record, std::string_view key) { return number(record.find(key)); }
inline double number(const JsonValue* record, std::string_view key) { return record == nullptr ? kNone : number(*record, key); }
inline std::string words(const JsonValue* value) { return value != nullptr && value->is_string() ? value->as_string() : ""; }
inline std::string words(const JsonValue& record, std::string_view key) { return words(record.find(key)); }

inline const JsonValue::Array& items(const JsonValue* value) {
  static const JsonValue::Array none;
  return value != nullptr && value->is_array() ? value->items() : none;
}

inline bool has(const std::vector<JsonValue>& records, std::string_view key) {
  return std::ranges::any_of(records, [&](const JsonValue& record) { return std::isfinite(number(record, key)); });
}

}  // namespace trident
