#include "infer/generate/text_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/utf8.h"

namespace trident {
namespace {

std::string in_pieces(const std::string& bytes, const std::vector<std::string>& stops, std::mt19937& random, int most) {
  TextStream stream(stops);
  std::string shown;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t n = 1 + random() % static_cast<unsigned>(most);
    shown += stream.push(std::string_view(bytes).substr(at, n));
    EXPECT_EQ(valid_prefix(shown), shown.size()) << "what is shown ends inside a character";
    at += n;
  }
  return shown + stream.finish();
}

TEST(TextStream, HoldsACharacterBackUntilItIsWhole) {
  TextStream stream;
  EXPECT_EQ(stream.push("a\xE2\x82"), "a");
  EXPECT_EQ(stream.push("\xAC b"), "\xE2\x82\xAC b");
  EXPECT_EQ(stream.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(stream.push("\x80"), "\xF0\x9F\x98\x80");
}

TEST(TextStream, WhatNoByteCanCompleteIsReplacedAtOnce) {
  TextStream stream;
  EXPECT_EQ(stream.push("\xE0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // overlong
  EXPECT_EQ(stream.push("\xED\xA0"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  EXPECT_EQ(stream.push("\xC1"), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push("\xF4\x8F"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(TextStream, AnyCutOfAnyBytesReadsTheSame) {
  std::mt19937 random(7);
  static constexpr unsigned char kBytes[] = {'a',  'b',  0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2,
                                             0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (unsigned n = random() % 12; n > 0; --n) bytes.push_back(static_cast<char>(kBytes[random() % sizeof kBytes]));
    std::string expected;
    replace_ill_formed(bytes, &expected);
    EXPECT_EQ(in_pieces(bytes, {}, random, 3), expected) << ::testing::PrintToString(bytes);
  }
}

// What stands before the stop string that is complete first, found without holding anything back.
std::string cut(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops)
      if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(TextStream, StopsBeforeTheFirstStopStringWhereverTokensEnd) {
  std::mt19937 random(11);
  for (int round = 0; round < 4000; ++round) {
    const auto word = [&](unsigned length) {
      std::string s;
      for (unsigned i = 0; i < length; ++i) s.push_back("abc"[random() % 3]);
      return s;
    };
    const std::string text = word(random() % 16);
    std::vector<std::string> stops;
    for (unsigned n = 1 + random() % 3; n > 0; --n) stops.push_back(word(1 + random() % 4));
    EXPECT_EQ(in_pieces(text, stops, random, 4), cut(text, stops)) << text << " " << ::testing::PrintToString(stops);
  }
}

TEST(TextStream, SaysThatItStoppedAndIsSilentThen) {
  TextStream stream({"\n\n"});
  EXPECT_EQ(stream.push("one\n"), "one");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.push("two\n"), "\ntwo");
  EXPECT_EQ(stream.push("\nthree"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.push("four"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, AStopStringMayHaveCharactersOfManyBytes) {
  TextStream stream({"\xE2\x82\xAC"});
  EXPECT_EQ(stream.push("x\xE2"), "x");
  EXPECT_EQ(stream.push("\x82"), "");
  EXPECT_EQ(stream.push("\xAC!"), "");
  EXPECT_TRUE(stream.stopped());
}

TEST(TextStream, WhatWasHeldBackComesAtTheEnd) {
  TextStream stream({"END"});
  EXPECT_EQ(stream.push("the EN"), "the ");
  EXPECT_EQ(stream.finish(), "EN");
}

}  // namespace
}  // namespace trident
