#include "core/json_reader.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "core/at.h"
#include "core/file_io.h"
#include "core/json_scanner.h"
#include "core/printable.h"
#include "core/utf8.h"

namespace trident {
namespace {

// Names the format of a configuration file that is no JSON, by its first line that says something; "" without an idea.
std::string_view other_format(std::string_view path, std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    while (!line.empty() && static_cast<unsigned char>(line.back()) <= ' ') line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const auto is_name = [](std::string_view name) {
      while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
      return !name.empty() && std::isalpha(static_cast<unsigned char>(name.front())) != 0 &&
             std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; });
    };
    const std::size_t colon = line.find(':'), equals = line.find('=');
    if (line == "---" || line.starts_with("- ") || (colon < equals && is_name(line.substr(0, colon)))) return "YAML";
    if (path.ends_with(".py")) return "Python";
    const bool is_table = line.size() > 2 && line.front() == '[' && line.back() == ']' && is_name(line.substr(1, line.size() - 2));
    return is_table || (equals < line.size() && is_name(line.substr(0, equals))) ? "TOML" : "";
  }
  return "";
}

// No control character remains, and no byte that is not UTF-8.
void append_escaped(std::string& out, std::string_view text) {
  std::string well_formed;
  if (valid_prefix(text) < text.size()) {
    replace_ill_formed(text, &well_formed);
    text = well_formed;
  }
  while (!text.empty()) {
    const CodePoint c = code_point_at(text, 0);
    if (c.value == '"' || c.value == '\\') (out += '\\') += static_cast<char>(c.value);
    else if (c.value == '\n') out += "\\n";
    else if (c.value == '\t') out += "\\t";
    else if (is_control(c.value)) out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c.value));
    else out += text.substr(0, c.size);
    text.remove_prefix(c.size);
  }
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = fmt::format("{}", value);
  // Keep the kind: 1.0 must not come back as the integer 1.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

bool holds_object(const JsonValue::Array& items) {
  for (const JsonValue& item : items)
    if (item.is_object()) return true;
  return false;
}

class Writer {
 public:
  explicit Writer(int indent) : indent_(indent) {}

  void write(const JsonValue& value, int level) {
    switch (value.kind()) {
      case JsonValue::Kind::kNull: out_ += "null"; return;
      case JsonValue::Kind::kBool: out_ += value.as_bool() ? "true" : "false"; return;
      case JsonValue::Kind::kInteger: out_ += fmt::format("{}", value.as_integer()); return;
      case JsonValue::Kind::kNumber:
        out_ += value.large_integer() != nullptr ? value.large_integer()->digits : number_text(value.as_number());
        return;
      case JsonValue::Kind::kString: write_string(value.as_string()); return;
      case JsonValue::Kind::kArray: write_array(value.items(), level); return;
      case JsonValue::Kind::kObject: write_object(value.members(), level); return;
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void write_string(std::string_view text) {
    out_ += '"';
    append_escaped(out_, text);
    out_ += '"';
  }
  void write_array(const JsonValue::Array& items, int level) {
    const bool broken = indent_ > 0 && holds_object(items);
    out_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += broken || indent_ == 0 ? "," : ", ";
      if (broken) new_line(level + 1);
      write(items[i], level + 1);
    }
    if (broken) new_line(level);
    out_ += ']';
  }
  void write_object(const JsonValue::Object& members, int level) {
    const bool broken = indent_ > 0 && !members.empty();
    out_ += '{';
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out_ += ',';
      if (broken) new_line(level + 1);
      write_string(members[i].key);
      out_ += indent_ > 0 ? ": " : ":";
      write(members[i].value, level + 1);
    }
    if (broken) new_line(level);
    out_ += '}';
  }
  void new_line(int level) { out_.append(1, '\n').append(static_cast<std::size_t>(level * indent_), ' '); }

  int indent_;
  std::string out_;
};

}  // namespace

JsonValue::JsonValue(Array items) : value_(std::move(items)) {}
JsonValue::JsonValue(Object members) : value_(std::move(members)) {}

bool JsonValue::as_bool() const {
  TRIDENT_CHECK(is_bool(), "JSON value is {}", describe(kind()));
  return std::get<bool>(value_);
}

std::int64_t JsonValue::as_integer() const {
  TRIDENT_CHECK(is_integer(), "JSON value is {}", describe(kind()));
  return std::get<std::int64_t>(value_);
}

double JsonValue::as_number() const {
  TRIDENT_CHECK(is_number(), "JSON value is {}", describe(kind()));
  if (const LargeInteger* const large = large_integer()) return std::strtod(large->digits.c_str(), nullptr);
  return is_integer() ? static_cast<double>(std::get<std::int64_t>(value_)) : std::get<double>(value_);
}

const std::string& JsonValue::as_string() const {
  TRIDENT_CHECK(is_string(), "JSON value is {}", describe(kind()));
  return std::get<std::string>(value_);
}

const JsonValue::Array& JsonValue::items() const {
  TRIDENT_CHECK(is_array(), "JSON value is {}", describe(kind()));
  return std::get<Array>(value_);
}

const JsonValue::Object& JsonValue::members() const {
  TRIDENT_CHECK(is_object(), "JSON value is {}", describe(kind()));
  return std::get<Object>(value_);
}

JsonValue::Object& JsonValue::members() {
  TRIDENT_CHECK(is_object(), "JSON value is {}", describe(kind()));
  return std::get<Object>(value_);
}

const JsonValue* JsonValue::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const JsonMember& member : members())
    if (member.key == key) return &member.value;
  return nullptr;
}

JsonValue* JsonValue::find(std::string_view key) { return const_cast<JsonValue*>(std::as_const(*this).find(key)); }

const JsonValue& JsonValue::get(std::string_view key) const {
  static const JsonValue null;
  const JsonValue* const found = find(key);
  return found == nullptr ? null : *found;
}

std::string JsonValue::text_at(std::string_view key) const { return get(key).is_string() ? get(key).as_string() : ""; }

std::optional<std::int64_t> JsonValue::integer_at(std::string_view key) const {
  return get(key).is_integer() ? std::optional(get(key).as_integer()) : std::nullopt;
}

std::optional<double> JsonValue::number_at(std::string_view key) const {
  return get(key).is_number() ? std::optional(get(key).as_number()) : std::nullopt;
}

const JsonValue::Array& JsonValue::items_at(std::string_view key) const {
  static const Array none;
  return get(key).is_array() ? get(key).items() : none;
}

const JsonValue::Object& JsonValue::members_at(std::string_view key) const {
  static const Object none;
  return get(key).is_object() ? get(key).members() : none;
}

void JsonValue::set(std::string_view key, JsonValue value) {
  if (is_null()) value_ = Object{};
  if (JsonValue* old = find(key)) *old = std::move(value);
  else members().push_back({std::string(key), std::move(value)});
}

bool JsonValue::operator==(const JsonValue& other) const { return value_ == other.value_; }

std::string to_json_text(const JsonValue& value, int indent) {
  Writer writer(indent);
  writer.write(value, 0);
  return writer.take();
}

std::string in_quotes(std::string_view text, std::size_t max_chars) {
  std::size_t end = std::min(text.size(), max_chars);
  while (end > 0 && end < text.size() && (text[end] & 0xC0) == 0x80) --end;  // not inside a character
  std::string out = "\"";
  append_escaped(out, text.substr(0, end));
  return out += text.size() > max_chars ? "...\"" : "\"";
}

std::string_view describe(JsonValue::Kind kind) {
  constexpr std::array<std::string_view, 7> kKinds{"null",     "true or false", "an integer", "a number",
                                                   "a string", "a list",        "an object"};
  return at(kKinds, kind);
}

JsonValue parse_json(std::string_view text, std::string_view source, const JsonRules& rules) {
  JsonScanner scanner(text, source, rules);
  std::size_t values_left = rules.max_values;
  JsonValue value = scanner.value(values_left);
  scanner.end();
  return value;
}

JsonValue read_json_file(const std::string& path, const JsonRules& rules) {
  std::string text;
  try {
    const RandomAccessFile file(path);
    // Before it is read.
    if (file.size() > static_cast<std::int64_t>(rules.max_bytes))
      throw DataError(fmt::format("{}: {} bytes, the limit of such a JSON file is {}; name the file that was meant", path,
                                  file.size(), rules.max_bytes));
    text = file.text(0, file.size());
    return parse_json(text, path, rules);
  } catch (const ConfigError&) {
    const std::string_view format = other_format(path, text);
    if (format.empty()) throw;
    throw ConfigError(fmt::format("{}: this is {}; Trident reads JSON, whose keys are in docs/configuration.md", path, format));
  } catch (const DataError& error) {
    if (rules.blame == ExitCode::kConfig) throw ConfigError(error.what());
    throw;
  }
}

}  // namespace trident
