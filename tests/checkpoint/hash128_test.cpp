#include "checkpoint/format/hash128.h"

#include <gtest/gtest.h>

namespace trident {
namespace {

// Byte i is i * 7 % 251.
std::string counting(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 % 251);
  return text;
}

// python3 -c 'import xxhash; print(xxhash.xxh128(bytes(i * 7 % 251 for i in range(N))).hexdigest())' prints these: a size for each
// of the algorithm's ways through short and long inputs, and one of more than 4 MiB.
TEST(Hash128, EqualsTheReference) {
  const std::pair<std::size_t, std::string_view> cases[] = {
      {0, "99aa06d3014798d86001c324468d497f"},    {1, "a6cd5e9392000f6ac44bdff4074eecdb"},
      {3, "656e81c56e41fe02c3489259e968ad9e"},    {4, "ab5c3e7474d809db81a65295de8e7dde"},
      {8, "e4b9dd0b66ff3c50ebabbd0695002ff6"},    {9, "82ddc95bc76007671c69c3f04aaed08c"},
      {16, "ddf6c1254d70f76794eaa17b20756f46"},   {17, "263f67af63088041735fe434ded90c3c"},
      {128, "381610c474b8adfb2dfb73305de1f91a"},  {129, "4e05eed4427255d51f8b5092c9ba3be8"},
      {240, "17ffe035d71c1ec8e6bf81617aad6c4a"},  {241, "29bc1e9cffb6d79bc614c8c3575348c1"},
      {512, "f9a147f95e48ea8b95e4fda72852917f"},  {1024, "07fe8eadab1cf098f22ef3dc84ff47ea"},
      {1025, "c89d767cdacc7c7643f869a83769a435"}, {5000000, "54267257613dd3ee3840835fa3d7cdd3"}};
  for (const auto& [size, digits] : cases) EXPECT_EQ(to_string(hash128(counting(size))), digits) << size;
}

TEST(Hash128, DigitsRoundTrip) {
  const Hash128 hash{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(to_string(hash), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(hash_from(to_string(hash)), hash);
  EXPECT_EQ(to_string(Hash128{1, 2}), "00000000000000010000000000000002");
}

TEST(Hash128, OtherTextIsNoHash) {
  const std::string good(kHashDigits, 'a');
  EXPECT_TRUE(hash_from(good));
  EXPECT_FALSE(hash_from(""));
  EXPECT_FALSE(hash_from(good.substr(1)));
  EXPECT_FALSE(hash_from(good + "a"));
  // Every byte but the sixteen digits, at both ends.
  for (int c = 0; c < 256; ++c) {
    const bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    for (const std::size_t at : {std::size_t{0}, kHashDigits - 1}) {
      std::string text = good;
      text[at] = static_cast<char>(c);
      EXPECT_EQ(hash_from(text).has_value(), digit) << c;
    }
  }
}

}  // namespace
}  // namespace trident
