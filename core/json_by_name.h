// Numbers of all values of an enumeration as a JSON object.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "core/json_reader.h"

namespace trident {

// {"compute": 1.5, "bubble": 0.5}: by the names that to_string() gives the values 0, 1, ..., each number as `as` has it.
template <class Name, class Number, std::size_t kCount>
JsonValue json_by_name(const std::array<Number, kCount>& numbers,
                       JsonValue (*as)(std::type_identity_t<Number>) = [](Number it) { return JsonValue(it); }) {
  JsonValue out;
  for (std::size_t i = 0; i < kCount; ++i) out.set(to_string(static_cast<Name>(i)), as(numbers[i]));
  return out;
}

}  // namespace trident
