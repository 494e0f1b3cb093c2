#include "core/nearest_name.h"

#include <gtest/gtest.h>

#include <string>

namespace trident {
namespace {

TEST(NearestName, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("same", "SAME"), 0u);
  EXPECT_EQ(edit_distance("etnsor", "tensor"), 1u) << "a swap is one edit";
}

TEST(NearestName, IsTheFirstOfTheClosest) {
  EXPECT_EQ(nearest_name("abd", {"xyz", "abc", "abe"}), "abc");
  EXPECT_EQ(nearest_name("completensor", {"data", "tensor"}), "tensor") << "however far";
  EXPECT_EQ(nearest_name(std::string(100000, 'x'), {"data"}), "data");
  EXPECT_EQ(nearest_name("abd", {}), "");
}

TEST(NearestName, IsLikelyOnlyNearby) {
  EXPECT_EQ(likely_name("tensr", {"data", "tensor"}), "tensor");
  EXPECT_EQ(likely_name("TENSOR", {"data", "tensor"}), "tensor");
  EXPECT_EQ(likely_name("etnsor", {"data", "tensor"}), "tensor");
  EXPECT_EQ(likely_name("completely", {"data", "tensor"}), "");
  EXPECT_EQ(likely_name("abcd", {"ef", "abxx"}), "abxx");
  EXPECT_EQ(likely_name("ab", {"c", "abx"}), "abx");
  EXPECT_EQ(likely_name("mlp", {"help"}), "") << "of three bytes two edits leave one";
  EXPECT_EQ(likely_name(std::string(1000, 'x'), {"data"}), "");
  EXPECT_EQ(likely_name("abd", {}), "");
}

}  // namespace
}  // namespace trident
