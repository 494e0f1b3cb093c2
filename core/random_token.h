// A name that nobody else draws.
#pragma once

#include <cstddef>
#include <string>

namespace trident {

inline constexpr std::size_t kRandomDigits = 16;
// So many hexadecimal digits of the system's random numbers.
std::string random_token();

}  // namespace trident
