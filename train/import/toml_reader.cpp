#include "train/import/toml_reader.h"

// toml++ alone is compiled from its headers here.
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <sstream>

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

bool begins_key(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("_-\"'").find(c) != std::string_view::npos;
}

// The end of the string that begins at `at`, of one line or of several.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool is_long = text.substr(at).starts_with(std::string(3, quote));
  const std::string mark(is_long ? 3 : 1, quote);
  for (at += mark.size(); at < text.size() && !text.substr(at).starts_with(mark); ++at) {
    if (text[at] == '\n' && !is_long) return at;
    if (text[at] == '\\' && quote == '"') ++at;
  }
  at += mark.size();
  while (is_long && at < text.size() && text[at] == quote) ++at;
  return std::min(at, text.size());
}

// toml++ takes for granted, without a look, that the name of a table follows its bracket.
void check_headers(std::string_view text, std::string_view source) {
  int line = 1, depth = 0;
  std::size_t line_begin = 0;
  bool is_first = true;  // nothing but blanks stands before on the line
  for (std::size_t at = 0, next = 0; at < text.size(); at = next) {
    const char c = text[at];
    next = at + 1;
    if (c == '#') next = std::min(text.find('\n', at), text.size());
    else if (c == '"' || c == '\'') next = end_of_string(text, at);
    else if (c == '[' && is_first && depth == 0) {
      std::size_t name = text.find_first_not_of(" \t", next);
      if (name == next && text.substr(name).starts_with('[')) name = text.find_first_not_of(" \t", name + 1);
      if (name != text.npos && text[name] != '[' && text[name] != ']' && !begins_key(text[name]))
        refuse_at(source, line, static_cast<int>(name - line_begin) + 1, "the header of a table lacks its name");
    }
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    is_first = is_first && (c == ' ' || c == '\t' || c < 0);  // a byte-order mark is below 0
    for (std::size_t i = at; i < next; ++i)
      if (text[i] == '\n') ++line, line_begin = i + 1, is_first = true;
  }
}

class TomlConverter {
 public:
  explicit TomlConverter(std::string_view source) : limits_(source) {}

  JsonValue value(const toml::node& node, const toml::source_position& at, int depth) {
    const int line = static_cast<int>(at.line), column = static_cast<int>(at.column);
    if (const auto* text = node.as_string()) limits_.add({0, text->get().size()}, line, column);
    limits_.add({1, 0}, line, column);
    JsonValue made;
    if (const toml::table* table = node.as_table()) made = members(*table, depth + 1, at);
    else if (const toml::array* array = node.as_array()) made = items(*array, depth + 1, at);
    else if (const auto* text = node.as_string()) made = text->get();
    else if (const auto* integer = node.as_integer()) made = integer->get();
    else if (const auto* number = node.as_floating_point()) made = number->get();
    else if (const auto* boolean = node.as_boolean()) made = boolean->get();
    else made = date(node);
    made.set_position(line, column);
    return made;
  }

 private:
  JsonValue members(const toml::table& table, int depth, const toml::source_position& at) {
    limits_.check_depth(depth, static_cast<int>(at.line), static_cast<int>(at.column));
    JsonValue::Object members;
    for (const auto& [key, node] : table) {
      const toml::source_position& begin = key.source().begin;
      limits_.add({0, key.str().size()}, static_cast<int>(begin.line), static_cast<int>(begin.column));
      members.push_back({std::string(key.str()), value(node, begin, depth)});
    }
    std::ranges::stable_sort(members, {}, [](const JsonMember& m) { return std::pair(m.value.line(), m.value.column()); });
    return members;
  }

  JsonValue items(const toml::array& array, int depth, const toml::source_position& at) {
    limits_.check_depth(depth, static_cast<int>(at.line), static_cast<int>(at.column));
    JsonValue::Array items;
    for (const toml::node& node : array) items.push_back(value(node, node.source().begin, depth));
    return items;
  }

  static std::string date(const toml::node& node) {
    std::ostringstream text;
    if (const auto* date = node.as_date()) text << date->get();
    else if (const auto* time = node.as_time()) text << time->get();
    else if (const auto* both = node.as_date_time()) text << both->get();
    return text.str();
  }

  ForeignLimits limits_;
};

}  // namespace

JsonValue read_toml(std::string_view text, std::string_view source) {
  check_foreign_text(text, source);
  check_dotted_keys(text, source);
  check_headers(text, source);
  try {
    const toml::table table = toml::parse(text);
    return TomlConverter(source).value(table, {1, 1}, 0);
  } catch (const toml::parse_error& error) {
    const toml::source_position& at = error.source().begin;
    refuse_at(source, static_cast<int>(at.line), static_cast<int>(at.column), on_one_line(error.description()));
  }
}

}  // namespace trident
