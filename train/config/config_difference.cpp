#include "train/config/config_difference.h"

namespace trident {

std::optional<Difference> first_difference(const JsonValue& a, const JsonValue& b, const std::string& path) {
  if (a == b) return std::nullopt;
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.members()) {
      const std::string inner = path.empty() ? key : path + "." + key;
      const JsonValue* other = b.find(key);
      if (other == nullptr) return Difference{inner, to_json_text(value), "nothing"};
      if (auto found = first_difference(value, *other, inner)) return found;
    }
    for (const auto& [key, value] : b.members()) {
      if (a.find(key) == nullptr) return Difference{path.empty() ? key : path + "." + key, "nothing", to_json_text(value)};
    }
  }
  return Difference{path, to_json_text(a), to_json_text(b)};
}

}  // namespace trident
