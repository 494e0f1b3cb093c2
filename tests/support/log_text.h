// Logs of runs that are called identical.
#pragma once

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"

namespace trident {

// One value for each line of a JSONL text.
inline std::vector<JsonValue> json_lines(const std::string& text) {
  std::vector<JsonValue> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) values.push_back(parse_json(line, "a log"));
  return values;
}

// A record of a JSONL log without what a clock said: when it was written, and what was timed.
inline JsonValue without_clocks(const JsonValue& record) {
  constexpr std::array<std::string_view, 6> kClocks{"time", "elapsed_s", "step_ms", "tokens_per_s", "mfu", "save_ms"};
  JsonValue rest;
  for (const JsonMember& member : record.members())
    if (std::ranges::find(kClocks, member.key) == kClocks.end()) rest.set(member.key, member.value);
  return rest;
}

// The records of a JSONL text, likewise, one line each.
inline std::vector<std::string> lines_without_clocks(const std::string& text) {
  std::vector<std::string> lines;
  for (const JsonValue& record : json_lines(text)) lines.push_back(to_json_text(without_clocks(record)));
  return lines;
}

}  // namespace trident
