// Tables of cases: questions about memory, schedules and traffic with the answers that somebody published or calculated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/json_reader.h"

namespace trident {

// A row asks a question. What it knows of the answer (measured, derived, expected, tolerance, tolerance_abs, notes, note,
// our_event_model) is gone before anybody reads it, and so are the members that say where it comes from.
struct CaseRow {
  JsonValue id;         // a text; of a row that cannot be read what it has there, null where that is an array, an object or nothing
  std::string kind;     // "" for a row of measured results, which has none
  JsonValue fields;     // an object
  std::string refused;  // why this is no row, beginning with file and line; empty: it is one
};

// An array of rows; an object with such an array as `cases`, `entries` or `rows`; or lines with an object each, of which a single
// one has an `id` or a `kind`. A row that is no object, has no text as `id` or another kind than a text is one of the result,
// `refused`, and so is a line that is no JSON behind a first one that is. Throws DataError naming file, line and what is missing:
// no JSON, no rows.
std::vector<CaseRow> read_case_rows(const std::string& path);
std::vector<CaseRow> case_rows(JsonValue table, std::string_view where);
std::vector<CaseRow> case_rows_of_text(std::string_view text, std::string_view where);

// A row that cannot be answered; the message says why, beginning with the member. Ends as the row's `unsupported`, never a process.
class UnsupportedCase : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

// One object of a row, `name` of it ("config", "input"). Members that are absent and members that are null are the same.
// Values are checked as they are read: UnsupportedCase names the member, its value and what it should be.
class CaseFields {
 public:
  CaseFields(const CaseRow& row, std::string_view name);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // A number, at least 0 or above 0.
  double amount(std::string_view key) const;
  double positive(std::string_view key) const;
  // A whole number from 1 to `most`, however written (7000000000.0).
  std::int64_t count(std::string_view key, std::int64_t most = std::int64_t{1} << 40) const;
  std::string text(std::string_view key) const;
  bool flag(std::string_view key) const;
  // With what stands for a missing one; it goes into assumed().
  double amount_or(std::string_view key, double fallback);
  std::int64_t count_or(std::string_view key, std::int64_t fallback, std::int64_t most = std::int64_t{1} << 40);
  bool flag_or(std::string_view key, bool fallback);
  void assume(std::string_view key, JsonValue value) { assumed_.push_back({std::string(key), std::move(value)}); }

  const JsonValue::Object& assumed() const { return assumed_; }

 private:
  const JsonValue* find(std::string_view key) const;
  const JsonValue& required(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, std::string_view wanted) const;

  const JsonValue* object_;
  std::string name_;
  JsonValue::Object assumed_;
};

// A case asks for this, by the name that its table uses.
using CaseQuantities = JsonValue::Object;

// Whole numbers as integers, so that nothing is printed as 1e+11.
JsonValue exact_number(double value);

}  // namespace trident
