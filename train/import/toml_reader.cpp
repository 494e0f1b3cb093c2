#include "train/import/toml_reader.h"

#include <stdexcept>

// toml++ alone is compiled from its headers here. Its assertions throw in every build, because text can make one fail.
static constexpr void assert_toml(bool holds) {
  if (!holds) throw std::logic_error("an assertion of toml++");
}
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) assert_toml(static_cast<bool>(expr))
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include <algorithm>

#include "core/printable.h"
#include "train/import/text_limits.h"

namespace trident {
namespace {

// toml++ limits nested lists, but not dotted keys, whose tables it frees one within another.
constexpr int kMaxDotsOfLine = 1000;

void check_dotted_keys(std::string_view text, std::string_view source) {
  int line = 1, dots = 0;
  for (const char c : text) {
    if (c == '\n') ++line, dots = 0;
    if (c == '.' && ++dots > kMaxDotsOfLine)
      refuse_at(source, line, 1, fmt::format("more than {} dots on a line", kMaxDotsOfLine));
  }
}

// The line of the first header without a name, which is what fails toml++'s assertions.
int line_without_name(std::string_view text) {
  constexpr std::string_view kBeginKey = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-\"'";
  for (int line = 1; !text.empty(); ++line) {
    std::string_view rest = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), rest.size() + 1));
    const std::size_t name = rest.find_first_not_of(" \t\r[");
    if (rest.find('[') < name && (name == rest.npos || kBeginKey.find(rest[name]) == rest.npos)) return line;
  }
  return 1;
}

class TomlConverter {
 public:
  explicit TomlConverter(std::string_view source) : source_(source), limits_(source) {}

  JsonValue value(const toml::node& node, const toml::source_position& at, int depth, std::size_t bytes = 0) {
    const int line = static_cast<int>(at.line), column = static_cast<int>(at.column);
    const toml::table* const table = node.as_table();
    const toml::array* const array = node.as_array();
    const auto* const text = node.as_string();
    limits_.add(bytes + (text == nullptr ? 0 : text->get().size()), depth += table || array ? 1 : 0, line, column);
    JsonValue made;
    if (table != nullptr) made = members(*table, depth);
    else if (array != nullptr) made = items(*array, depth);
    else if (text != nullptr) made = text->get();
    else if (const auto* integer = node.as_integer()) made = integer->get();
    else if (const auto* number = node.as_floating_point()) made = number->get();
    else if (const auto* boolean = node.as_boolean()) made = boolean->get();
    else refuse_at(source_, line, column, "a date or a time, which no configuration has; write it in quotes");
    made.set_position(line, column);
    return made;
  }

 private:
  JsonValue members(const toml::table& table, int depth) {
    JsonValue::Object members;
    for (const auto& [key, node] : table)
      members.push_back({std::string(key.str()), value(node, key.source().begin, depth, key.str().size())});
    std::ranges::stable_sort(members, {}, [](const JsonMember& m) { return std::pair(m.value.line(), m.value.column()); });
    return members;
  }
  JsonValue items(const toml::array& array, int depth) {
    JsonValue::Array items;
    for (const toml::node& node : array) items.push_back(value(node, node.source().begin, depth));
    return items;
  }

  std::string_view source_;
  ForeignLimits limits_;
};

}  // namespace

JsonValue read_toml(std::string_view text, std::string_view source) {
  check_dotted_keys(text, source);
  try {
    const toml::table table = toml::parse(text);
    return TomlConverter(source).value(table, {1, 1}, 0);
  } catch (const toml::parse_error& error) {
    const toml::source_position& at = error.source().begin;
    refuse_at(source, static_cast<int>(at.line), static_cast<int>(at.column), on_one_line(error.description()));
  } catch (const std::logic_error&) {
    refuse_at(source, line_without_name(text), 1, "the header of a table lacks its name");
  }
}

}  // namespace trident
