// Filters, tests and methods of chat templates, by name.
#pragma once

#include <string>
#include <string_view>

#include "data/chat/jinja_interpreter.h"

namespace trident::jinja {

// nullptr: not known.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
std::string filter_names();  // for messages
std::string test_names();

// Whether Python's type has such a method, and whether it is one that Jinja's sandbox hides.
bool has_method(const Value& value, std::string_view name);
bool changes_its_object(const Value& value, std::string_view name);
Value call_method(Interpreter& in, const Method& method, const Arguments& arguments);

}  // namespace trident::jinja
