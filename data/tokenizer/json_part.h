// Reads an object of a JSON file member by member, and messages name its path.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/json_reader.h"
#include "core/printable.h"

namespace trident {

// A tokenizer's file may be as large as it is.
inline JsonRules rules_for(std::string_view text) {
  return {.comments = false, .max_bytes = text.size(), .blame = ExitCode::kData};
}

class JsonPart {
 public:
  // `path` is "pre_tokenizer.pretokenizers[1]"; `remedy` is what messages advise. The value, the file's name and the remedy must
  // live as long.
  JsonPart(const JsonValue& value, std::string path, const std::string& file,
           std::string_view remedy = "use a tokenizer of these parts, or change the file")
      : value_(value), path_(std::move(path)), file_(file), remedy_(remedy) {
    if (!value.is_object())
      throw DataError(fmt::format("{}{}: {} is {}; known is an object; {}", file_, line_and_column(value),
                                  path_.empty() ? "the file" : path_, in_quotes(to_json_text(value)), remedy_));
  }

  const std::string& path() const { return path_; }
  const std::string& file() const { return file_; }
  std::string path_of(std::string_view key) const { return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key); }
  // For messages; with line and column, of the object where the member is missing.
  std::string where(std::string_view key) const {
    const JsonValue* const found = value_.find(key);
    return on_one_line(fmt::format("{}{}: {}", file_, line_and_column(found == nullptr ? value_ : *found), path_of(key)));
  }

  // A member, or nullptr where it is absent or null.
  const JsonValue* find(std::string_view key) {
    seen_.emplace_back(key);
    const JsonValue* const value = value_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  bool flag(std::string_view key, bool fallback) {
    const JsonValue* const value = find(key);
    if (value != nullptr && !value->is_bool()) refuse(key, *value, "true or false");
    return value == nullptr ? fallback : value->as_bool();
  }
  std::string text(std::string_view key, const char* fallback = nullptr) {
    const JsonValue* const value = find(key);
    if (value == nullptr && fallback != nullptr) return fallback;
    if (value == nullptr || !value->is_string()) refuse(key, value == nullptr ? JsonValue() : *value, "a string");
    return value->as_string();
  }
  std::optional<std::int64_t> optional_count(std::string_view key) {
    const JsonValue* const value = find(key);
    if (value != nullptr && (!value->is_integer() || value->as_integer() < 0)) refuse(key, *value, "a count");
    return value == nullptr ? std::nullopt : std::optional(value->as_integer());
  }
  std::int64_t count(std::string_view key, std::optional<std::int64_t> fallback = std::nullopt) {
    const std::optional<std::int64_t> found = optional_count(key);
    if (!found && !fallback) refuse(key, JsonValue(), "a count");
    return found ? *found : *fallback;
  }
  // The object of a member.
  JsonPart part(std::string_view key, std::string_view expected = "an object") {
    const JsonValue* const value = find(key);
    if (value == nullptr) refuse(key, JsonValue(), expected);
    return {*value, path_of(key), file_, remedy_};
  }
  const JsonValue::Array& list(std::string_view key) {
    const JsonValue* const value = find(key);
    if (value == nullptr || !value->is_array()) refuse(key, value == nullptr ? JsonValue() : *value, "a list");
    return value->items();
  }
  std::string one_of(std::string_view key, std::span<const std::string_view> known, const char* fallback = nullptr) {
    const std::string found = text(key, fallback);
    if (std::ranges::find(known, found) == known.end()) refuse(key, found, fmt::format("one of {}", fmt::join(known, ", ")));
    return found;
  }
  // Refuses members that nobody asked for.
  void end() const {
    for (const JsonMember& member : value_.members())
      if (std::ranges::find(seen_, member.key) == seen_.end())
        refuse(member.key, member.value, seen_.empty() ? "no field" : fmt::format("no field but {}", fmt::join(seen_, ", ")));
  }

  // `found` is null where the member is absent.
  [[noreturn]] void refuse(std::string_view key, const JsonValue& found, std::string_view expected) const {
    const bool is_missing = found.is_null() && value_.find(key) == nullptr;
    const std::string shown = found.is_string() ? found.as_string() : to_json_text(found);
    throw DataError(fmt::format("{} is {}; known is {}; {}", where(key), is_missing ? "missing" : in_quotes(shown), expected,
                                remedy_));
  }

 private:
  static std::string line_and_column(const JsonValue& value) {
    return value.line() > 0 ? fmt::format(":{}:{}", value.line(), value.column()) : "";
  }

  const JsonValue& value_;
  std::string path_;
  const std::string& file_;
  std::string_view remedy_;
  std::vector<std::string> seen_;
};

}  // namespace trident
