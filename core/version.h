// The version of the program, as commands and files have it.
#pragma once

#include <string_view>

namespace trident {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace trident
