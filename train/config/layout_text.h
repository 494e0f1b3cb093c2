// "2DP x 4PP x 4TP": the short spelling of the parallel degrees.
#pragma once

#include <cstdint>
#include <string_view>

namespace trident {

struct LayoutDegrees {
  std::int64_t data = 1, pipeline = 1, tensor = 1, context = 1;
  bool operator==(const LayoutDegrees&) const = default;
};

// Factors <number><axis>, axis TP, PP, DP or CP in any case, joined by x, *, the multiplication sign, commas or spaces, in any
// order; a missing axis is 1. Throws ConfigError beginning with `where` for anything else, an axis named twice included.
LayoutDegrees parse_layout(std::string_view text, std::string_view where);

}  // namespace trident
