// Strict JSON: the one way text that users wrote becomes values.
//
// Configurations and model files come from outside: size, depth and number of values are limited, a duplicate key is an error (not
// the last one silently), an integer is never a rounded float, and every value knows its line and column. Comments (// and /* */)
// are allowed where the caller says so; trailing commas are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/check.h"

namespace trident {

struct JsonMember;

// A JSON value; plain and copyable. Object members keep the order of the text.
class JsonValue {
 public:
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;
  struct LargeInteger {
    std::string digits;  // and a sign
    bool operator==(const LargeInteger&) const = default;
  };

  JsonValue();  // null
  JsonValue(std::nullptr_t);
  JsonValue(bool value);
  JsonValue(std::int64_t value);
  JsonValue(int value);
  JsonValue(double value);
  JsonValue(LargeInteger value);
  JsonValue(std::string value);
  JsonValue(std::string_view value);
  JsonValue(const char* value);
  JsonValue(Array items);
  JsonValue(Object members);
  // Null where there is nothing; a list of the values.
  template <class T>
  JsonValue(const std::optional<T>& value);
  template <class T>
  JsonValue(const std::vector<T>& values);

  // kInteger: written without fraction and exponent, and within int64; every other number is kNumber.
  Kind kind() const { return large_integer() != nullptr ? Kind::kNumber : static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_integer() const { return kind() == Kind::kInteger; }
  bool is_number() const { return kind() == Kind::kInteger || kind() == Kind::kNumber; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }

  // The content. Asking for another kind than kind() is a bug in the caller (InternalError); as_number also takes an integer.
  bool as_bool() const;
  const LargeInteger* large_integer() const { return std::get_if<LargeInteger>(&value_); }  // a kNumber that was an integer
  std::int64_t as_integer() const;
  double as_number() const;
  const std::string& as_string() const;
  const Array& items() const;
  const Object& members() const;
  Object& members();

  // The member's value, or nullptr: absent, or this is no object.
  const JsonValue* find(std::string_view key) const;
  JsonValue* find(std::string_view key);
  // The member's value, or null; and what it holds where it is of that kind. Files that people change have members of others, which
  // count as absent: "", nothing, or an empty list.
  const JsonValue& get(std::string_view key) const;
  std::string text_at(std::string_view key) const;
  std::optional<std::int64_t> integer_at(std::string_view key) const;
  std::optional<double> number_at(std::string_view key) const;
  const Array& items_at(std::string_view key) const;
  const Object& members_at(std::string_view key) const;
  // Replaces or appends a member; a null becomes an object first.
  void set(std::string_view key, JsonValue value);

  // Where the value began in its text, from 1; 0 for a value that was not parsed.
  int line() const { return line_; }
  int column() const { return column_; }
  void set_position(int line, int column) { line_ = line, column_ = column; }

  // Equal content; positions do not count, and 1 differs from 1.0 (kinds are compared).
  bool operator==(const JsonValue& other) const;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object, LargeInteger> value_;
  int line_ = 0;
  int column_ = 0;
};

struct JsonMember {
  std::string key;
  JsonValue value;
  bool operator==(const JsonMember&) const = default;
};

// Here, because they need a complete JsonMember.
inline JsonValue::JsonValue() = default;
inline JsonValue::JsonValue(std::nullptr_t) {}
inline JsonValue::JsonValue(bool value) : value_(value) {}
inline JsonValue::JsonValue(std::int64_t value) : value_(value) {}
inline JsonValue::JsonValue(int value) : value_(std::int64_t{value}) {}
inline JsonValue::JsonValue(double value) : value_(value) {}
template <class T>
JsonValue::JsonValue(const std::optional<T>& value) {
  if (value) *this = JsonValue(*value);
}
template <class T>
JsonValue::JsonValue(const std::vector<T>& values) : value_(Array(values.begin(), values.end())) {}
inline JsonValue::JsonValue(LargeInteger value) : value_(std::move(value)) {}
inline JsonValue::JsonValue(std::string value) : value_(std::move(value)) {}
inline JsonValue::JsonValue(std::string_view value) : value_(std::string(value)) {}
inline JsonValue::JsonValue(const char* value) : value_(std::string(value)) {}

// parse_json accepts this much, and throws ConfigError for a configuration, DataError for a data or model file.
struct JsonRules {
  bool comments = true;  // allowed
  std::size_t max_bytes = std::size_t{1} << 20;
  int max_depth = 64;
  ExitCode blame = ExitCode::kConfig;
  std::size_t max_values = std::size_t{1} << 19;  // a value takes 48 bytes and more, and may have two of text
  bool replaces_surrogates = false;  // lone ones, by U+FFFD
  std::int64_t first_line = 1;  // of the text in its file, for messages
};

// The value of `text`; `source` (a file name) begins every message: "<source>:<line>:<column>: <what>".
// Throws ConfigError or DataError, whichever rules.blame says: malformed text, duplicate key, too deep, too large, too many values,
// number out of range. Larger texts than rules.max_values allow for are JsonScanner's.
JsonValue parse_json(std::string_view text, std::string_view source, const JsonRules& rules = {});

// parse_json of a regular file's content; a missing, unreadable or oversized file, a folder or a FIFO throws likewise.
JsonValue read_json_file(const std::string& path, const JsonRules& rules = {});

// Text that parse_json reads back to an equal value: doubles in their shortest exact form, a non-finite one as null (JSON has
// none). `indent` 0: one line; otherwise objects and arrays of objects are broken into lines indented by that many spaces.
std::string to_json_text(const JsonValue& value, int indent = 0);

// "text" with quotes and escapes, so that no byte of foreign input reaches a terminal as it is; cut after `max_chars`.
std::string in_quotes(std::string_view text, std::size_t max_chars = 80);

// "an integer", "a string", ... for messages.
std::string_view describe(JsonValue::Kind kind);

}  // namespace trident
