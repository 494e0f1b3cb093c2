#include "model/config/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "core/check.h"
#include "core/json_reader.h"

namespace trident {
namespace {

// A tiny Llama with the case's rotary keys.
ModelConfig model_of(const JsonValue& golden) {
  JsonValue json = parse_json(R"({"model_type": "llama", "vocab_size": 97, "hidden_size": 64, "intermediate_size": 64,
                                  "num_hidden_layers": 1, "num_attention_heads": 2})",
                              "test");
  for (const std::string_view key : {"head_dim", "max_position_embeddings", "rope_parameters"}) json.set(key, *golden.find(key));
  return model_config_from_hf(json, golden.find("name")->as_string());
}

double at(const JsonValue& rows, std::size_t row, std::size_t column) { return rows.items()[row].items()[column].as_number(); }

TEST(RopeTable, AgreesWithTransformers) {
  const JsonValue goldens = read_json_file(TRIDENT_MODEL_GOLDENS "/rope.json");
  ASSERT_EQ(goldens.items().size(), 14u);
  for (const JsonValue& golden : goldens.items()) {
    const std::string& name = golden.find("name")->as_string();
    const ModelConfig config = model_of(golden);
    EXPECT_NEAR(rope_attention_factor(config.rope), golden.find("attention_factor")->as_number(), 1e-12) << name;

    const std::vector<float> frequencies =
        rope_inverse_frequencies(config.rope, config.rotary_dim(), golden.find("positions")->items().back().as_integer() + 1);
    const JsonValue::Array& expected = golden.find("inv_freq")->items();
    ASSERT_EQ(frequencies.size(), expected.size()) << name;
    // 1 ulp of the power, and what follows from it.
    for (std::size_t i = 0; i < frequencies.size(); ++i)
      EXPECT_NEAR(frequencies[i] / expected[i].as_number(), 1.0, 4e-7) << name << " pair " << i;

    const JsonValue::Array& positions = golden.find("positions")->items();
    const RopeTable table = make_rope_table(config, positions.back().as_integer() + 1);
    ASSERT_EQ(table.pairs, static_cast<std::int64_t>(expected.size()));
    ASSERT_EQ(table.cos.size(), static_cast<std::size_t>(table.positions * table.pairs));
    for (std::size_t p = 0; p < positions.size(); ++p) {
      const auto position = positions[p].as_integer();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto j = static_cast<std::size_t>(position * table.pairs) + i;
        // A frequency that is off by an ulp turns the angle by an ulp.
        const double tolerance = 3e-7 * (1.0 + static_cast<double>(position) * expected[i].as_number());
        EXPECT_NEAR(table.cos[j], at(*golden.find("cos"), p, i), tolerance) << name << " position " << position << " pair " << i;
        EXPECT_NEAR(table.sin[j], at(*golden.find("sin"), p, i), tolerance) << name << " position " << position << " pair " << i;
      }
    }
  }
}

TEST(RopeTable, PositionZeroTurnsNothing) {
  ModelConfig config =
      model_config_from_hf_json(R"({"model_type": "llama", "vocab_size": 9, "hidden_size": 32, "intermediate_size": 8,
      "num_hidden_layers": 1, "num_attention_heads": 2})",
                                "test");
  const RopeTable table = make_rope_table(config, 3);
  EXPECT_EQ(table.pairs, 8);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(table.cos[i], 1.0f);
    EXPECT_EQ(table.sin[i], 0.0f);
  }
  EXPECT_FLOAT_EQ(table.cos[8], std::cos(1.0f)) << "the first pair turns by one radian per position";
  EXPECT_TRUE(make_rope_table(config, 0).cos.empty());
}

TEST(RopeTable, PartialRotationHasFewerPairs) {
  ModelConfig config =
      model_config_from_hf_json(R"({"model_type": "llama", "vocab_size": 9, "hidden_size": 64, "intermediate_size": 8,
      "num_hidden_layers": 1, "num_attention_heads": 2, "partial_rotary_factor": 0.25})",
                                "test");
  EXPECT_EQ(config.rotary_dim(), 8);
  const RopeTable table = make_rope_table(config, 2);
  EXPECT_EQ(table.pairs, 4);
  EXPECT_FLOAT_EQ(table.sin[4 + 1], std::sin(std::pow(10000.0f, -0.25f))) << "theta^(-2i/dim), dim the rotated part";
}

TEST(RopeTable, OddWidthsAreABug) { EXPECT_THROW(rope_inverse_frequencies(RopeConfig{}, 7, 1), InternalError); }

}  // namespace
}  // namespace trident
