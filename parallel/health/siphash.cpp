#include "parallel/health/siphash.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace trident {
namespace {

template <class Bytes>
std::uint64_t little_endian(const Bytes& bytes, std::size_t at, std::size_t count = 8) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < count; ++i) word |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + i])} << (8 * i);
  return word;
}

struct State {
  std::uint64_t v0, v1, v2, v3;

  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1, v1 = std::rotl(v1, 13), v1 ^= v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16), v3 ^= v2;
      v0 += v3, v3 = std::rotl(v3, 21), v3 ^= v0;
      v2 += v1, v1 = std::rotl(v1, 17), v1 ^= v2, v2 = std::rotl(v2, 32);
    }
  }
  void take(std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
};

}  // namespace

std::uint64_t siphash(const SipHashKey& key, std::string_view bytes) {
  const std::uint64_t k0 = little_endian(key, 0), k1 = little_endian(key, 8);
  // "somepseudorandomlygeneratedbytes", as the paper has it.
  State state{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573};
  const std::size_t whole = bytes.size() / 8 * 8;
  for (std::size_t at = 0; at < whole; at += 8) state.take(little_endian(bytes, at));
  state.take(little_endian(bytes, whole, bytes.size() - whole) | std::uint64_t{bytes.size()} << 56);
  state.v2 ^= 0xff;
  state.rounds(4);
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace trident
