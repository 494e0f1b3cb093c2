#include "checkpoint/format/hash128.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace trident {

namespace {

// The value of a digit; nothing unless it is 0-9 or a-f.
std::optional<std::uint64_t> digit_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<std::uint64_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<std::uint64_t>(c - 'a' + 10);
  return std::nullopt;
}

}  // namespace

Hash128 hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

Hash128 hash128(std::string_view text) { return hash128(std::as_bytes(std::span(text))); }

std::string to_string(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

std::optional<Hash128> hash_from(std::string_view text) {
  if (text.size() != kHashDigits) return std::nullopt;
  Hash128 hash;
  for (std::size_t i = 0; i < kHashDigits; ++i) {
    const std::optional<std::uint64_t> value = digit_value(text[i]);
    if (!value) return std::nullopt;
    std::uint64_t& half = i < kHashDigits / 2 ? hash.high : hash.low;
    half = half << 4 | *value;
  }
  return hash;
}

}  // namespace trident
