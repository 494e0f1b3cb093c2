// SipHash-2-4 of 64 bits (Aumasson and Bernstein, 2012): a short keyed hash. Whoever does not know the key cannot make or check
// one.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trident {

using SipHashKey = std::array<std::uint8_t, 16>;

std::uint64_t siphash(const SipHashKey& key, std::string_view bytes);

}  // namespace trident
