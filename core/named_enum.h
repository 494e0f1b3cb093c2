// Enumerations whose values have texts: in configurations, in files and in messages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace trident {

// The texts of the values 0, 1, ...; an enumeration that has them specialises this where it is defined.
template <class Enum>
inline constexpr std::array<std::string_view, 0> kNamesOf{};

template <class Enum>
concept NamedEnum = std::is_enum_v<Enum> && !kNamesOf<Enum>.empty();

// Whether the enumeration names this value: the compiler writes the others as a cast, "(Enum)6".
template <auto kValue>
consteval bool is_enumerator() {
  const std::string_view function = __PRETTY_FUNCTION__, name = "kValue";
  return function[function.find_first_not_of(" =", function.rfind(name) + name.size())] != '(';
}

// "?" of a number that is no value, which may come from a file or a peer.
template <NamedEnum Enum>
constexpr std::string_view to_string(Enum value) {
  static_assert(!is_enumerator<static_cast<Enum>(kNamesOf<Enum>.size())>(), "a value has no text");
  static_assert(is_enumerator<static_cast<Enum>(kNamesOf<Enum>.size() - 1)>(), "a text has no value");
  const auto number = static_cast<std::size_t>(value);
  return number < kNamesOf<Enum>.size() ? kNamesOf<Enum>[number] : "?";
}

// Nothing where no value has this text.
template <NamedEnum Enum>
constexpr std::optional<Enum> parse_name(std::string_view text) {
  const auto found = std::ranges::find(kNamesOf<Enum>, text);
  return found == kNamesOf<Enum>.end() ? std::nullopt : std::optional(static_cast<Enum>(found - kNamesOf<Enum>.begin()));
}

}  // namespace trident
