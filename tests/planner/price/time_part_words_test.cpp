// Tests what parts of a step are called: each by words of its own.
#include "planner/price/step_price.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <string_view>

namespace trident {
namespace {

TEST(TimePartWords, AreThereForEachPartAndAreItsOwn) {
  std::set<std::string_view> names, titles, meanings, causes;
  for (std::size_t part = 0; part < kNumTimeParts; ++part) {
    const TimePartWords& words = part_words(static_cast<TimePart>(part));
    EXPECT_EQ(to_string(static_cast<TimePart>(part)), words.name);
    EXPECT_TRUE(names.insert(words.name).second) << words.name;
    EXPECT_TRUE(titles.insert(words.title).second) << words.title;
    EXPECT_TRUE(meanings.insert(words.meaning).second) << words.meaning;
    EXPECT_TRUE(causes.insert(words.cause).second) << words.cause;
  }
  for (const auto& all : {names, titles, meanings, causes}) EXPECT_FALSE(all.contains(""));
  EXPECT_EQ(part_words(TimePart::kTensor).name, "tp");
  EXPECT_EQ(part_words(TimePart::kBubble).cause, "the pipeline's bubble");
  EXPECT_EQ(part_words(TimePart::kLaunch).title, "launch gaps");
  EXPECT_EQ(part_words(TimePart::kOther).meaning, "what no part is");
}

}  // namespace
}  // namespace trident
