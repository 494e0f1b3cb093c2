#include "core/philox.h"

#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/fnv1a.h"

namespace trident {
namespace {

PhiloxKey to_key(std::uint64_t hash) { return {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)}; }

Fnv1a start(std::uint64_t seed, RandomPurpose purpose) {
  Fnv1a hash;
  hash.add(seed);
  hash.add(static_cast<std::uint64_t>(purpose));
  return hash;
}

}  // namespace

PhiloxKey random_key(std::uint64_t seed, RandomPurpose purpose, std::string_view name) {
  Fnv1a hash = start(seed, purpose);
  hash.add(name);
  return to_key(hash.value());
}

PhiloxKey random_key(std::uint64_t seed, RandomPurpose purpose, std::uint64_t number) {
  Fnv1a hash = start(seed, purpose);
  hash.add(number);
  return to_key(hash.value());
}

PhiloxKey dropout_key(std::uint64_t seed, std::int64_t step, int unit, int place) {
  const std::uint64_t number =
      static_cast<std::uint64_t>(step) << 24 | static_cast<std::uint64_t>(unit) << 4 | static_cast<std::uint64_t>(place);
  return random_key(seed, RandomPurpose::kDropout, number);
}

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
