// Indexing by signed integers and by enumerators.
#pragma once

#include <cstddef>
#include <type_traits>

namespace trident {

// values[index], which must be within `values`; sanitized builds check it (_GLIBCXX_ASSERTIONS).
template <class Values, class Index>
  requires std::is_integral_v<Index> || std::is_enum_v<Index>
constexpr decltype(auto) at(Values&& values, Index index) {
  return values[static_cast<std::size_t>(index)];
}

}  // namespace trident
