#include "supervise/text_placeholders.h"

#include <algorithm>

namespace trident {

std::string with_placeholders(std::string_view text, const Placeholders& values) {
  std::string out;
  while (!text.empty()) {
    const auto here = std::ranges::find_if(values, [text](const auto& value) { return text.starts_with(value.first); });
    if (here == values.end()) {
      out += text.front();
      text.remove_prefix(1);
    } else {
      out += here->second;
      text.remove_prefix(here->first.size());
    }
  }
  return out;
}

}  // namespace trident
