// Reading of JSON objects whose numbers say where they come from: {"value": 312, "source": "vendor's data sheet"}.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_reader.h"

namespace trident {

// One object, read key by key; `finish` refuses the keys that nobody asked for. Every function throws ConfigError that begins
// with "<where>.<key>".
class SourcedObject {
 public:
  SourcedObject(const JsonValue& object, std::string where) : SourcedObject(object, std::move(where), false) {}

  // A constant with its source; value in [low, high].
  double number(std::string_view key, double low, double high);
  int whole_number(std::string_view key, int low, int high);
  std::string sourced_text(std::string_view key);
  // Text and lists of text: names need no source.
  std::string text(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  bool flag(std::string_view key);
  // A member object, read in the same way.
  SourcedObject object(std::string_view key);
  std::vector<std::string> keys() const;
  bool has(std::string_view key) const { return object_.find(key) != nullptr; }

  void finish() const;

 protected:
  // A file that a program wrote can be written again.
  static constexpr bool kCalibrated = true;
  SourcedObject(const JsonValue& object, std::string where, bool calibrated);
  const JsonValue& member(std::string_view key);
  const std::string& where() const { return where_; }

 private:
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const;
  const JsonValue& sourced_value(std::string_view key);

  const JsonValue& object_;
  std::string where_;
  bool calibrated_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace trident
