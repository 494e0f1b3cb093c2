// Regular expressions of whole names, as users write them: bounded in length, and in the time that a match takes.
#pragma once

#include <cstddef>
#include <regex>
#include <string>

namespace trident {

inline constexpr std::size_t kLongestNamePattern = 1000;  // bytes; deeper nesting than a stack has room for is longer

// ECMAScript; a match takes polynomial time. Throws std::regex_error, error_complexity for one that is too long.
inline std::regex name_pattern(const std::string& text) {
  if (text.size() > kLongestNamePattern) throw std::regex_error(std::regex_constants::error_complexity);
  return std::regex(text, std::regex_constants::ECMAScript | std::regex_constants::__polynomial);
}

}  // namespace trident
