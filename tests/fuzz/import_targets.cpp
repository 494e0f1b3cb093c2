// Files of other systems.
#include <optional>

#include "core/json_reader.h"
#include "tests/fuzz/fuzz_target.h"
#include "import/text_limits.h"
#include "import/toml_reader.h"
#include "import/yaml_reader.h"

namespace trident::fuzz {
namespace {

// There is no writer of these forms; what was read is a value of JSON, with null for a number that is not finite.
void check_read(const JsonValue& value) {
  JsonRules rules;
  rules.max_bytes = std::size_t{1} << 24;  // bytes that JSON escapes
  const std::string text = to_json_text(value);
  require(to_json_text(parse_json(text, "x.json", rules)) == text, "written and read again it is another value");
}

}  // namespace

bool yaml(std::string_view input) {
  std::optional<JsonValue> value;
  for (const YamlTyping typing : {YamlTyping::kOmegaConf, YamlTyping::kPyYaml}) {
    value.reset();
    if (accepts([&] { check_foreign_text(input, "x.yaml"), value = read_yaml(input, "x.yaml", typing); })) check_read(*value);
  }
  return value.has_value();
}

bool toml(std::string_view input) {
  std::optional<JsonValue> value;
  if (accepts([&] { check_foreign_text(input, "x.toml"), value = read_toml(input, "x.toml"); })) check_read(*value);
  return value.has_value();
}

}  // namespace trident::fuzz
