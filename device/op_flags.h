// The yes/no choices of operations, spelled out at call sites.
#pragma once

#include <cstdint>

namespace trident {

enum class Transpose : std::uint8_t { kNo, kYes };
enum class Accumulate : std::uint8_t { kNo, kYes };

}  // namespace trident
