#include "core/json_reader.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <unordered_set>

#include "core/file_io.h"

namespace trident {
namespace {

[[noreturn]] void refuse(ExitCode blame, const std::string& message) {
  if (blame == ExitCode::kConfig) throw ConfigError(message);
  throw DataError(message);
}

void check_size(std::int64_t bytes, std::string_view source, const JsonRules& rules) {
  if (bytes > static_cast<std::int64_t>(rules.max_bytes))
    refuse(rules.blame, fmt::format("{}: {} bytes of JSON, the limit is {}", source, bytes, rules.max_bytes));
}

struct Position {
  int line = 1;
  int column = 1;
};

// The library's parser is told to read through this iterator, so that its handler knows how far it has read.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, std::size_t* consumed) : at_(at), consumed_(consumed) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*consumed_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  std::size_t* consumed_;
};

// Where a comma stands that a closing bracket at `end` follows, with nothing but spaces and comments between.
std::optional<std::size_t> trailing_comma(std::string_view text, std::size_t end) {
  if (end >= text.size() || (text[end] != '}' && text[end] != ']')) return std::nullopt;
  std::optional<std::size_t> comma;
  for (std::size_t i = 0; i < end; ++i) {
    const char c = text[i];
    if (std::string_view(" \t\r\n").find(c) != std::string_view::npos) continue;
    const std::string_view two = text.substr(i, 2);
    if (two == "//" || two == "/*") {
      const std::size_t close = two == "//" ? text.find('\n', i) : text.find("*/", i + 2);
      if (close >= end) return std::nullopt;
      i = two == "//" ? close : close + 1;
      continue;
    }
    comma.reset();
    if (c == ',') comma = i;
    if (c == '"')
      while (++i < end && text[i] != '"')
        if (text[i] == '\\') ++i;
  }
  return comma;
}

// What a configuration file is that is no JSON, by its first line that says something; "" without an idea.
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

// Builds a JsonValue from the library's events; throws on the first violation.
class Builder {
 public:
  Builder(std::string_view text, std::string_view source, const JsonRules& rules, const std::size_t& consumed)
      : text_(text), source_(source), rules_(rules), consumed_(consumed) {}

  JsonValue take() { return std::move(root_); }

  bool null() { return add(JsonValue{}); }
  bool boolean(bool value) { return add(JsonValue{value}); }
  bool number_integer(std::int64_t value) { return add(JsonValue{value}); }
  bool number_unsigned(std::uint64_t value) {
    // Beyond int64 the value is kept as a float, so that a reader of integers refuses it instead of wrapping it.
    return add(std::in_range<std::int64_t>(value) ? JsonValue{static_cast<std::int64_t>(value)}
                                                  : JsonValue{static_cast<double>(value)});
  }
  bool number_float(double value, const std::string&) { return add(JsonValue{value}); }
  bool string(std::string& value) { return add(JsonValue{std::move(value)}); }
  bool binary(std::vector<std::uint8_t>&) { return false; }  // no text produces it
  bool key(std::string& name) {
    if (!open_.back().keys.insert(name).second) refuse_here("duplicate key " + in_quotes(name) + "; keep one of them");
    open_.back().value.members().push_back({std::move(name), JsonValue{}});
    return true;
  }
  bool start_object(std::size_t) { return open(JsonValue{JsonValue::Object{}}); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(JsonValue{JsonValue::Array{}}); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    std::string what = error.what();  // "[json.exception...] parse error at line 1, column 2: syntax error while parsing ..."
    if (const auto colon = what.find(": "); colon != std::string::npos) what = what.substr(colon + 2);
    else if (const auto bracket = what.find("] "); bracket != std::string::npos) what = what.substr(bracket + 2);
    for (char& c : what) c = (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? ' ' : c;
    const std::size_t at = position > 0 ? position - 1 : 0;
    if (const auto comma = trailing_comma(text_, at))
      refuse_at(position_of(*comma), fmt::format("not valid JSON: trailing comma on line {}; remove it", position_of(*comma).line));
    refuse_at(position_of(at), "not valid JSON: " + what);
  }

 private:
  struct Open {
    JsonValue value;
    std::vector<JsonValue> items;
    std::unordered_set<std::string> keys;
  };

  Position position_of(std::size_t offset) const {
    offset = std::min(offset, text_.size());
    Position at;
    for (std::size_t i = 0; i < offset; ++i) {
      if (text_[i] == '\n') at = {at.line + 1, 1};
      else ++at.column;
    }
    return at;
  }
  // Where the token ends that the library has just read; events come in order, so counting goes on where it stopped.
  Position here() {
    const std::size_t end = std::min(consumed_, text_.size());
    for (; counted_ + 1 < end; ++counted_) {
      if (text_[counted_] == '\n') at_ = {at_.line + 1, 1};
      else ++at_.column;
    }
    return at_;
  }
  [[noreturn]] void refuse_at(Position at, const std::string& what) const {
    refuse(rules_.blame, fmt::format("{}:{}:{}: {}", source_, at.line, at.column, what));
  }
  [[noreturn]] void refuse_here(const std::string& what) { refuse_at(here(), what); }

  bool add(JsonValue value) {
    const Position at = here();
    if (value.line() == 0) value.set_position(at.line, at.column);
    if (open_.empty()) root_ = std::move(value);
    else if (open_.back().value.is_object()) open_.back().value.members().back().value = std::move(value);
    else open_.back().items.push_back(std::move(value));
    return true;
  }
  bool open(JsonValue value) {
    if (static_cast<int>(open_.size()) >= rules_.max_depth)
      refuse_here(fmt::format("nested deeper than {} levels", rules_.max_depth));
    const Position at = here();
    value.set_position(at.line, at.column);
    open_.push_back({std::move(value), {}, {}});
    return true;
  }
  bool close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    if (closed.value.is_object()) return add(std::move(closed.value));
    JsonValue array{std::move(closed.items)};
    array.set_position(closed.value.line(), closed.value.column());
    return add(std::move(array));
  }

  std::string_view text_;
  std::string_view source_;
  const JsonRules& rules_;
  const std::size_t& consumed_;
  std::size_t counted_ = 0;
  Position at_;
  std::vector<Open> open_;
  JsonValue root_;
};

// What follows is a value's way back to text.
void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') (out += '\\') += c;
    else if (c == '\n') out += "\\n";
    else if (c == '\t') out += "\\t";
    else if (byte < 0x20 || byte == 0x7f) out += fmt::format("\\u{:04x}", byte);
    else out += c;
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
      case JsonValue::Kind::kNumber: out_ += number_text(value.as_number()); return;
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
  std::string out = "\"";
  append_escaped(out, text.substr(0, max_chars));
  return out += text.size() > max_chars ? "...\"" : "\"";
}

std::string_view describe(JsonValue::Kind kind) {
  switch (kind) {
    case JsonValue::Kind::kNull: return "null";
    case JsonValue::Kind::kBool: return "true or false";
    case JsonValue::Kind::kInteger: return "an integer";
    case JsonValue::Kind::kNumber: return "a number";
    case JsonValue::Kind::kString: return "a string";
    case JsonValue::Kind::kArray: return "a list";
    case JsonValue::Kind::kObject: return "an object";
  }
  return "?";
}

JsonValue parse_json(std::string_view text, std::string_view source, const JsonRules& rules) {
  check_size(std::ssize(text), source, rules);
  std::size_t consumed = 0;
  Builder builder(text, source, rules, consumed);
  nlohmann::json::sax_parse(CountingIterator(text.data(), &consumed), CountingIterator(text.data() + text.size(), &consumed),
                            &builder, nlohmann::json::input_format_t::json, true, rules.comments == JsonComments::kAllowed);
  return builder.take();
}

JsonValue read_json_file(const std::string& path, const JsonRules& rules) {
  std::string text;
  try {
    const RandomAccessFile file(path);
    check_size(file.size(), path, rules);  // before it is read
    text.resize(static_cast<std::size_t>(file.size()));
    file.read(0, std::as_writable_bytes(std::span(text)));
    return parse_json(text, path, rules);
  } catch (const ConfigError&) {
    const std::string_view format = other_format(path, text);
    if (format.empty()) throw;
    throw ConfigError(fmt::format("{}: this is {}; Trident reads JSON, whose keys are in docs/configuration.md", path, format));
  } catch (const DataError& error) {
    refuse(rules.blame, error.what());
  }
}

}  // namespace trident
