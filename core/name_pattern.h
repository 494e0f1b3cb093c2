// What users write for modules' names: a name or the end of one; and regular expressions of whole names, bounded in length, and in
// the time that a match takes.
#pragma once

#include <cstddef>
#include <regex>
#include <string>
#include <string_view>

namespace trident {

inline constexpr std::size_t kLongestNamePattern = 1000;  // bytes; deeper nesting than a stack has room for is longer

// ECMAScript; a match takes polynomial time. Throws std::regex_error, error_complexity for one that is too long.
inline std::regex name_pattern(const std::string& text) {
  if (text.size() > kLongestNamePattern) throw std::regex_error(std::regex_constants::error_complexity);
  return std::regex(text, std::regex_constants::ECMAScript | std::regex_constants::__polynomial);
}

// Whether `end` is the dotted name, or its end behind a dot.
inline bool is_end_of_name(std::string_view end, std::string_view name) {
  return name == end || (name.ends_with(end) && name[name.size() - end.size() - 1] == '.');
}

}  // namespace trident
