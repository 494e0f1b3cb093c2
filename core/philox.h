// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//
// A number is a pure function of (key, counter): no state, no order, the same in every layout. Who draws what is fixed by
// RandomKey: (seed, purpose, a name or numbers), and the counter is a global element index.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trident {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

// Ten rounds.
constexpr PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    k = {k[0] + 0x9E3779B9u, k[1] + 0xBB67AE85u};
  }
  return c;
}

// The purpose of a random number is part of the key, so that no two uses ever share numbers.
enum class RandomPurpose : std::uint32_t {
  kInit = 1,
  kDropout = 2,
  kShuffle = 3,
  kTest = 4,
  kRounding = 5,
  kBench = 6,
  kSampling = 7
};

// A key from seed, purpose and a name (parameter name) or number; FNV-1a over all of them.
PhiloxKey random_key(std::uint64_t seed, RandomPurpose purpose, std::string_view name);
PhiloxKey random_key(std::uint64_t seed, RandomPurpose purpose, std::uint64_t number);

// The key of a unit's dropout masks in a step: `place` is a number of what drops within the unit. 2^20 units, 16 places.
PhiloxKey dropout_key(std::uint64_t seed, std::int64_t step, int unit, int place);

// Uniform in (0, 1]: 24 bits, never 0 (safe under log).
constexpr float uniform_from_bits(std::uint32_t bits) { return static_cast<float>((bits >> 8) + 1) * 0x1p-24f; }

// Uniform in (0,1] number `index` under `key` (word index%4 of counter index/4); `stream` fills the upper counter words.
constexpr float uniform_at(PhiloxKey key, std::uint64_t index, std::uint64_t stream = 0) {
  const std::uint64_t block = index / 4;
  const PhiloxCounter words = philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                          static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}, key);
  return uniform_from_bits(words[index % 4]);
}

}  // namespace trident
