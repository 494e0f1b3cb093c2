#include <map>
#include <string_view>

#include "core/printable.h"
#include "train/import/import.h"

namespace trident {
namespace {

constexpr std::size_t kLongestOrigin = 160;

// The values as one object; blocks are objects within it.
JsonValue tree_of(const Import& import) {
  JsonValue root{JsonValue::Object{}};
  for (const ImportedValue& value : import.values) {
    JsonValue* object = &root;
    std::string_view rest = value.path;
    for (std::size_t dot = rest.find('.'); dot != rest.npos; rest.remove_prefix(dot + 1), dot = rest.find('.')) {
      const std::string_view block = rest.substr(0, dot);
      if (object->find(block) == nullptr) object->set(block, JsonValue::Object{});
      object = object->find(block);
    }
    object->set(rest, value.value);
  }
  return root;
}

void append_members(std::string& out, const JsonValue& object, const std::string& prefix,
                    const std::map<std::string_view, std::string_view>& origins) {
  const std::string indent(2 + 2 * static_cast<std::size_t>(std::count(prefix.begin(), prefix.end(), '.')), ' ');
  for (const JsonMember& member : object.members()) {
    const std::string path = prefix + member.key;
    const std::string_view comma = &member == &object.members().back() ? "" : ",";
    out += fmt::format("{}{}: ", indent, in_quotes(member.key));
    if (const auto origin = origins.find(path); origin != origins.end()) {
      out += fmt::format("{}{}  // {}\n", to_json_text(member.value), comma, on_one_line(origin->second.substr(0, kLongestOrigin)));
      continue;
    }
    out += "{\n";
    append_members(out, member.value, path + ".", origins);
    out += fmt::format("{}}}{}\n", indent, comma);
  }
}

}  // namespace

std::string config_text(const Import& import) {
  std::map<std::string_view, std::string_view> origins;
  for (const ImportedValue& value : import.values) origins.emplace(value.path, value.origin);
  std::string out = "{\n";
  append_members(out, tree_of(import), "", origins);
  return out + "}\n";
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
  for (const ImportedDefault& value : import.defaults)
    defaults.emplace_back(JsonValue::Object{{"key", value.key}, {"value", value.value}, {"origin", value.origin}});
  return JsonValue::Object{{"config", tree_of(import)}, {"keys", std::move(keys)}, {"defaults", std::move(defaults)}};
}

}  // namespace trident
