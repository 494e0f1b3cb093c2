// Tests count what a text holds, and ask whether markup is whole.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

inline std::size_t occurrences(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

// "" where every start tag has its end tag in the right order, quotes are pairs and there is no stray '<' or '&': enough for what
// the program writes.
inline std::string first_fault(std::string_view xml) {
  std::vector<std::string> open;
  for (std::size_t at = xml.find('<'); at != xml.npos; at = xml.find('<', at + 1)) {
    const std::size_t end = xml.find('>', at);
    if (end == xml.npos || xml.substr(at + 1, end - at - 1).find('<') != xml.npos) return fmt::format("tag at {} has no end", at);
    const std::string_view tag = xml.substr(at + 1, end - at - 1);
    const std::string name(tag.substr(0, tag.find_first_of(" /", 1)));
    if (occurrences(tag, "\"") % 2 != 0) return fmt::format("quotes of <{}>", tag);
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != name) return fmt::format("</{}> closes nothing", name);
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
  }
  for (std::size_t at = xml.find('&'); at != xml.npos; at = xml.find('&', at + 1))
    if (xml.find(';', at) > at + 6) return fmt::format("a stray ampersand at {}", at);
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

}  // namespace trident
