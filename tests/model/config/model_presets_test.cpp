#include "model/config/model_presets.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

TEST(ModelPresets, EveryNameIsAModelWithoutDropout) {
  EXPECT_EQ(model_preset_names().size(), 26u);
  for (const std::string_view name : model_preset_names()) {
    const ModelConfig config = model_preset(name, "model.preset");
    EXPECT_EQ(config.residual_dropout, 0.0) << name;
    EXPECT_EQ(config.embedding_dropout, 0.0) << name;
    EXPECT_EQ(config, model_config_from_hf_json(model_preset_json(name, "model.preset"), "model")) << name;
  }
}

TEST(ModelPresets, AnUnknownNameNamesOneThatIsNear) {
  EXPECT_EQ(error_of<ConfigError>([&] { model_preset("gpt2-124", "model.preset"); }),
            "model.preset = \"gpt2-124\": no such model preset; did you mean \"gpt2-124m\"? known are gpt2-124m, gpt2-355m, "
            "gpt2-774m, gpt2-1.5b, gpt3-175b, llama-1m, llama-15m, llama-60m, llama2-7b, llama2-13b, llama2-70b, llama3-8b, "
            "llama3-70b, llama3.1-8b, llama3.1-70b, llama3.1-405b, llama3.2-1b, "
            "qwen2.5-0.5b, qwen2.5-1.5b, qwen2.5-7b, qwen3-0.6b, mistral-7b, olmo-1b, "
            "olmo2-1b, smollm2-135m, phi3-mini");
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

TEST(ModelPresets, PublishedNamesAreTaken) {
  const std::pair<const char*, const char*> names[] = {
      {"gpt2", "gpt2-124m"},
      {"openai-community/gpt2-medium", "gpt2-355m"},
      {"gpt2-large", "gpt2-774m"},
      {"gpt2-xl", "gpt2-1.5b"},
      {"meta-llama/Llama-2-7b", "llama2-7b"},
      {"meta-llama/Llama-2-13b-hf", "llama2-13b"},
      {"llama-3-8b", "llama3-8b"},
      {"meta-llama/Meta-Llama-3-70B", "llama3-70b"},
      {"meta-llama/Llama-3.1-8B", "llama3.1-8b"},
      {"Meta-Llama-3.1-70B", "llama3.1-70b"},
      {"meta-llama/Llama-3.2-1B", "llama3.2-1b"},
      {"Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"},
      {"Qwen/Qwen3-0.6B-Base", "qwen3-0.6b"},
      {"mistralai/Mistral-7B-v0.2", "mistral-7b"},
      {"allenai/OLMo-1B-hf", "olmo-1b"},
      {"allenai/OLMo-2-0425-1B", "olmo2-1b"},
      {"HuggingFaceTB/SmolLM2-135M", "smollm2-135m"},
      {"microsoft/Phi-3-mini-4k-instruct", "phi3-mini"},
  };
  for (const auto& [name, preset] : names) EXPECT_EQ(model_preset(name, ""), model_preset(preset, "")) << name;
  // Others' shapes or positions.
  for (const char* name : {"mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-v0.3", "llama-27b", "meta-llama/Llama-3.2-3B",
                           "Llama-7b", "microsoft/Phi-3-mini-128k-instruct", ""})
    EXPECT_THROW(model_preset(name, ""), ConfigError) << name;
  EXPECT_FALSE(model_preset("llama3.1-8b", "") == model_preset("llama3-8b", ""));
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
