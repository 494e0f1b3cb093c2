#include "core/philox.h"

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

}  // namespace trident
