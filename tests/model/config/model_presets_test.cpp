#include "model/model_presets.h"

#include <gtest/gtest.h>

#include "core/check.h"

namespace trident {
namespace {

TEST(ModelPresets, EveryNameIsAModelWithoutDropout) {
  EXPECT_EQ(model_preset_names().size(), 24u);
  for (const std::string_view name : model_preset_names()) {
    const ModelConfig config = model_preset(name, "model.preset");
    EXPECT_EQ(config.residual_dropout, 0.0) << name;
    EXPECT_EQ(config.embedding_dropout, 0.0) << name;
    EXPECT_EQ(config, model_config_from_hf_json(model_preset_json(name, "model.preset"), "model")) << name;
  }
}

TEST(ModelPresets, AnUnknownNameNamesOneThatIsNear) {
  try {
    model_preset("gpt2-124", "model.preset");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "model.preset = \"gpt2-124\": no such model preset; did you mean \"gpt2-124m\"? known are gpt2-124m, gpt2-355m, "
                 "gpt2-774m, gpt2-1.5b, gpt3-175b, llama-1m, llama-15m, llama-60m, llama2-7b, llama2-13b, llama2-70b, llama3-8b, "
                 "llama3-70b, llama3.1-405b, llama3.2-1b, qwen2.5-0.5b, qwen2.5-1.5b, qwen2.5-7b, qwen3-0.6b, mistral-7b, olmo-1b, "
                 "olmo2-1b, smollm2-135m, phi3-mini");
  }
}

TEST(ModelPresets, AnUnknownNameThatIsNearNoneNamesAll) {
  try {
    model_preset("gemma-9b", "model.preset");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with(
        "model.preset = \"gemma-9b\": no such model preset; known are gpt2-124m, gpt2-355m, "))
        << error.what();
  }
}

TEST(ModelPresets, Spots) {
  EXPECT_TRUE(model_preset("gpt2-124m", "").tie_embeddings);
  EXPECT_EQ(model_preset("llama3.1-405b", "").rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(model_preset("llama3.2-1b", "").rope.factor, 32.0);
  EXPECT_TRUE(model_preset("qwen2.5-0.5b", "").qkv_bias);
  EXPECT_EQ(model_preset("qwen3-0.6b", "").query_width(), 2048) << "not the hidden size, 1024";
  EXPECT_EQ(model_preset("olmo-1b", "").norm, NormKind::kPlainLayerNorm);
}

}  // namespace
}  // namespace trident
