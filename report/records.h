// Reads what a run's records hold, where they hold it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "core/json_reader.h"

namespace trident {

inline constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

inline double number(const JsonValue& value) { return value.is_number() ? value.as_number() : kNone; }
inline double number(const JsonValue& record, std::string_view key) { return record.number_at(key).value_or(kNone); }
inline bool has(const std::vector<JsonValue>& records, std::string_view key) {
  return std::ranges::any_of(records, [&](const JsonValue& record) { return std::isfinite(number(record, key)); });
}

}  // namespace trident
