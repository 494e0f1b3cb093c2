// The members of a row that describes a training run, checked as they are read.
//
// A row is an object of groups ("model", "cluster", "parallel", "batch", "stack") and of members beside them ("precision"). A
// member that is absent and one that is null are the same: not said. `stack` may be the name of a framework alone. Whatever is said
// is of its kind and within its range, or refused by name; nothing is taken for something else. Every access throws UnsupportedCase
// naming member, value and what it should be.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "planner/published/case_row.h"

namespace trident {

struct AssumedValue {
  std::string path;  // "batch.micro"
  JsonValue value;
};

class RunFields {
 public:
  // `row`: an object. A group of it that is neither an object nor null is refused.
  explicit RunFields(const JsonValue& row);

  // The value at "group.key", of the row itself where `group` is empty; nullptr: not said.
  const JsonValue* find(std::string_view group, std::string_view key);

  // A whole number from 1 to 10^8, however written (7.0): sizes, degrees, counts, of which products are still numbers.
  double number(std::string_view group, std::string_view key);
  // The same, or what stands for it, which goes into assumed().
  double number_or(std::string_view group, std::string_view key, double otherwise);
  std::optional<double> said_number(std::string_view group, std::string_view key);
  std::optional<std::string> said_text(std::string_view group, std::string_view key);  // small letters, without blanks at the ends
  std::optional<bool> said_flag(std::string_view group, std::string_view key);

  // Said to be open: null, not absent. Such a member is listed also where no price depends on what stands for it.
  bool is_null(std::string_view group, std::string_view key) const;
  void assume(std::string path, JsonValue value) { assumed_.push_back({std::move(path), std::move(value)}); }
  [[noreturn]] void cannot_be_priced(std::string_view group, std::string_view key, std::string_view wanted);

  std::vector<AssumedValue> take_assumed() { return std::move(assumed_); }
  // "model.window", ...: what the row says and nobody has asked for, besides members that only describe (`name`, counts of
  // parameters).
  std::vector<std::string> not_read() const;

 private:
  const JsonValue& row_;
  std::set<std::string> read_;
  std::vector<AssumedValue> assumed_;
};

// Small letters of ASCII.
std::string in_small_letters(std::string_view text);

}  // namespace trident
