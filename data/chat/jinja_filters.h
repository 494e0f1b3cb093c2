// Filters, tests and methods of chat templates, by name.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja_interpreter.h"
#include "data/chat/python_text.h"

namespace trident::jinja {

using Given = std::vector<const Value*>;  // for each parameter; nullptr: not given

struct NamedFilter {
  std::string_view name;
  Value (*apply)(Interpreter& in, const Value& value, const Given& given) = nullptr;
  std::array<std::string_view, 5> parameters = {};  // up to the first ""
  std::size_t num_required = 0;
  Value (*apply_to_all)(Interpreter& in, const Value& value, const Arguments& all) = nullptr;  // in its place: takes any arguments

  Value operator()(Interpreter& in, const Value& value, const Arguments& all) const;
};

// nullptr: not known.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
[[noreturn]] void refuse_filter(std::string_view name);
[[noreturn]] void refuse_test(std::string_view name);

// The names in a table of filters or of tests.
std::string names_of(const auto& rows) {
  std::string out;
  for (const auto& row : rows) (out += out.empty() ? "" : " ") += row.name;
  return out;
}

// A row whose names, with spaces between, have this one among them; or nullptr.
auto row_of(const auto& rows, std::string_view name) {
  const auto* const found = std::ranges::find_if(rows, [&](const auto& row) { return has_word(row.name, name); });
  return found == std::end(rows) ? nullptr : found;
}

// Whether Python's type has such a method, and whether it is one that Jinja's sandbox hides.
bool has_method(const Value& value, std::string_view name);
bool changes_its_object(const Value& value, std::string_view name);
Value call_method(Interpreter& in, const Method& method, const Arguments& arguments);

// Arguments of filters and methods: a str, the characters that strip() takes away or nullptr, an int, or a Refusal.
const Text& text_of(const Value& value, std::string_view function);
const Text* characters_of(Interpreter& in, const Value* value, std::string_view function);
std::int64_t whole_of(const Value* value, std::int64_t otherwise, std::string_view function);

Value tuple_of(const std::pair<Value, Value>& entry);
Value join_items(Interpreter& in, const std::vector<Value>& items, const Text& separator);

}  // namespace trident::jinja
