#include "core/philox.h"

#include <cmath>
#include <cstdint>
#include <numbers>

namespace trident {
namespace {

constexpr std::uint64_t kFnvOffset = 14695981039346656037ull, kFnvPrime = 1099511628211ull;

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  for (int i = 0; i < 8; ++i) hash = (hash ^ ((word >> (8 * i)) & 0xff)) * kFnvPrime;
  return hash;
}

PhiloxKey to_key(std::uint64_t hash) { return {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)}; }

std::uint64_t start(std::uint64_t seed, RandomPurpose purpose) {
  return mix(mix(kFnvOffset, seed), static_cast<std::uint64_t>(purpose));
}

}  // namespace

PhiloxKey random_key(std::uint64_t seed, RandomPurpose purpose, std::string_view name) {
  std::uint64_t hash = start(seed, purpose);
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  return to_key(hash);
}

PhiloxKey random_key(std::uint64_t seed, RandomPurpose purpose, std::uint64_t number) {
  return to_key(mix(start(seed, purpose), number));
}

float normal_at(PhiloxKey key, std::uint64_t index) { return Normals(key).at(index); }

void Normals::draw(std::uint64_t block) {
  const PhiloxCounter w = philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, key_);
  for (std::size_t pair = 0; pair < 4; pair += 2) {  // words 0,1 make normals 0,1; words 2,3 make normals 2,3
    const double u = (static_cast<double>(w[pair]) + 1.0) * 0x1p-32, v = static_cast<double>(w[pair + 1]) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * std::log(u)), angle = 2.0 * std::numbers::pi * v;
    values_[pair] = static_cast<float>(radius * std::cos(angle));
    values_[pair + 1] = static_cast<float>(radius * std::sin(angle));
  }
  block_ = block;
}

}  // namespace trident
