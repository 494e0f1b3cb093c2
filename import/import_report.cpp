#include <map>
#include <optional>
#include <string_view>

#include "core/printable.h"
#include "train/config/option_docs.h"
#include "import/import.h"
#include "train/config/train_config.h"

namespace trident {
namespace {

constexpr std::size_t kLongestOrigin = 240;  // bytes

// A comment of several origins ends behind a whole one.
std::string cut_origin(std::string_view origin) {
  if (origin.size() <= kLongestOrigin) return std::string(origin);
  const std::string_view begin = origin.substr(0, kLongestOrigin);
  const std::size_t end = begin.rfind(", ");
  return std::string(end == begin.npos ? begin : begin.substr(0, end + 2)) + "...";
}

// The known values as one object; blocks are objects within it.
JsonValue tree_of(const Import& import) {
  JsonValue root{JsonValue::Object{}};
  for (const ImportedValue& value : import.values) {
    if (!value.unknown.empty()) continue;
    slot_at(root, value.path) = value.value;
  }
  return root;
}

}  // namespace

std::string config_text(const Import& import) {
  std::map<std::string_view, std::string_view> origins;
  for (const ImportedValue& value : import.values) origins.emplace(value.path, value.origin);
  const auto origin_of = [&](const std::string& path) {
    const auto found = origins.find(path);
    return found == origins.end() ? std::nullopt : std::optional(on_one_line(cut_origin(found->second)));
  };
  return text_with_origins(tree_of(import), origin_of) + '\n';
}

JsonValue report_of(const Import& import) {
  JsonValue::Array keys, defaults;
  for (const ImportedKey& key : import.keys)
    keys.emplace_back(JsonValue::Object{{"file", key.leaf.file},
                                        {"line", key.leaf.line},
                                        {"key", key.leaf.key},
                                        {"value", key.leaf.value},
                                        {"verdict", name_of(key.verdict)},
                                        {"to", key.to},
                                        {"note", key.note}});
  for (const ImportedValue& value : import.defaults)
    defaults.emplace_back(JsonValue::Object{{"key", value.path}, {"value", value.value}, {"origin", value.origin}});
  return JsonValue::Object{{"config", tree_of(import)}, {"keys", std::move(keys)}, {"defaults", std::move(defaults)}};
}

}  // namespace trident
