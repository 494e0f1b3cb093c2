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

TEST(NearestName, IsTheFirstOfTheClosestThatAreNear) {
  using Names = std::vector<std::string_view>;
  const struct {
    std::string name;
    Names candidates;
    std::string_view near;
  } cases[] = {
      {"abd", {"xyz", "abc", "abe"}, "abc"},
      {"tensr", {"data", "tensor"}, "tensor"},
      {"TENSOR", {"data", "tensor"}, "tensor"},
      {"etnsor", {"data", "tensor"}, "tensor"},
      {"ab", {"c", "abx"}, "abx"},
      {"sequnec", {"data", "sequence"}, "sequence"},
      {"num_hidden_layer", {"num_hidden_layers"}, "num_hidden_layers"},
      {"intermedaite_szie", {"intermediate_size"}, "intermediate_size"},
      // Half of a short word, or more than three letters of a long one, is another word.
      {"mlp", {"help"}, ""},
      {"lora", {"log"}, ""},
      {"muon", {"lion"}, ""},
      {"abcd", {"abxx"}, ""},
      {"use_sliding_window", {"sliding_window"}, ""},
      {"attention_multiplier", {"attention_dropout"}, ""},
      {"completely", {"data", "tensor"}, ""},
      {std::string(1000, 'x'), {"data"}, ""},
      {"abd", {}, ""},
  };
  for (const auto& [name, candidates, near] : cases) EXPECT_EQ(likely_name(name, candidates), near) << name;
}

}  // namespace
}  // namespace trident
