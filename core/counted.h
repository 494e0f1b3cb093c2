// Numbers of things in sentences.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace trident {

// "1 rank", "2 ranks".
inline std::string counted(std::int64_t n, std::string_view thing) { return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s"); }

}  // namespace trident
