#include "core/name_pattern.h"

#include <fmt/format.h>

#include <regex>

namespace trident {

FitsName name_pattern(const std::string& text) {
  if (text.size() > kLongestNamePattern) throw BadNamePattern(fmt::format("has more than {} bytes", kLongestNamePattern));
  try {
    return [expression = std::regex(text, std::regex_constants::ECMAScript | std::regex_constants::__polynomial)](
               std::string_view name) { return std::regex_match(name.begin(), name.end(), expression); };
  } catch (const std::regex_error& error) {
    throw BadNamePattern(fmt::format("is no regular expression ({})", error.what()));
  }
}

}  // namespace trident
