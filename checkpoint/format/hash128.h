// XXH3-128, which finds what disks and networks get wrong. It does not protect against who means harm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trident {

struct Hash128 {
  std::uint64_t high = 0, low = 0;
  bool operator==(const Hash128&) const = default;
};

// XXH3_128bits with seed 0.
Hash128 hash128(std::span<const std::byte> bytes);
Hash128 hash128(std::string_view text);

// 32 hexadecimal digits in lower case, `high` first: xxhsum's notation.
inline constexpr std::size_t kHashDigits = 32;
std::string to_string(const Hash128& hash);
// Nothing unless `text` is 32 such digits.
std::optional<Hash128> hash_from(std::string_view text);

}  // namespace trident
