// A small complete configuration and what a call says when it refuses.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "train/config/train_config.h"

namespace trident::testing_support {

inline const char* const kSmall = R"({
  "run": {"steps": 5},
  "model": {"preset": "llama-1m"},
  "batch": {"global": 8, "sequence": 64},
  "data": {"train": "corpus/text"}
})";

// The message with which the small configuration and these --set arguments are refused; "accepted" where they are not.
inline std::string refusal(const std::vector<std::string>& settings, const std::string& text = kSmall) {
  try {
    parse_train_config(text, "c.json", settings);
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

inline TrainConfig small_with(const std::vector<std::string>& settings) { return parse_train_config(kSmall, "c.json", settings); }

}  // namespace trident::testing_support
