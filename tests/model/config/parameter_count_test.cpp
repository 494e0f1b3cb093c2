// Parameter counts that others published or computed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "core/check.h"
#include "core/json_reader.h"
#include "model/config/model_presets.h"
#include "model/config/model_stats.h"
#include "model/config/rope_table.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

struct GptCount {
  const char* name;
  std::int64_t layers, hidden, vocab, positions, parameters;
};

ModelConfig gpt(const GptCount& row) {
  const std::string json =
      fmt::format(R"({{"model_type": "gpt2", "n_layer": {}, "n_embd": {}, "n_head": 8, "vocab_size": {}, "n_positions": {}}})",
                  row.layers, row.hidden, row.vocab, row.positions);
  return model_config_from_hf_json(json, row.name);
}

// GPT-2 (OpenAI), and the table of mosaicml/llm-foundry, scripts/train/benchmarking/README.md: learned positions, biases, tied.
constexpr GptCount kPublished[] = {
    {"gpt2-124m", 12, 768, 50257, 1024, 124439808},          {"gpt2-350m", 24, 1024, 50257, 1024, 354823168},
    {"gpt2-774m", 36, 1280, 50257, 1024, 774030080},         {"gpt2-1558m", 48, 1600, 50257, 1024, 1557611200},
    {"mpt-70b-s2048", 80, 8192, 50368, 2048, 64862437376},   {"mpt-30b-s2048", 48, 7168, 50368, 2048, 29975214080},
    {"mpt-13b-s2048", 40, 5120, 50368, 2048, 12853954560},   {"mpt-7b-s2048", 32, 4096, 50368, 2048, 6658859008},
    {"mpt-3b-s2048", 32, 2560, 50368, 2048, 2651837440},     {"mpt-1b-s2048", 24, 2048, 50368, 2048, 1315950592},
    {"mpt-30b-s8192", 48, 7168, 50368, 8192, 30019254272},   {"mpt-30b-s4096", 48, 7168, 50368, 4096, 29989894144},
    {"mpt-30b-s1024", 48, 7168, 50368, 1024, 29967874048},   {"mpt-13b-s32768", 40, 5120, 50368, 32768, 13011240960},
    {"mpt-13b-s16384", 40, 5120, 50368, 16384, 12927354880}, {"mpt-13b-s4096", 40, 5120, 50368, 4096, 12864440320},
    {"mpt-13b-s1024", 40, 5120, 50368, 1024, 12848711680},   {"mpt-7b-s65536", 32, 4096, 50368, 65536, 6918905856},
    {"mpt-7b-s32768", 32, 4096, 50368, 32768, 6784688128},   {"mpt-7b-s8192", 32, 4096, 50368, 8192, 6684024832},
    {"mpt-7b-s4096", 32, 4096, 50368, 4096, 6667247616},     {"mpt-7b-s1024", 32, 4096, 50368, 1024, 6654664704},
    {"mpt-3b-s65536", 32, 2560, 50368, 65536, 2814366720},   {"mpt-3b-s32768", 32, 2560, 50368, 32768, 2730480640},
    {"mpt-3b-s16384", 32, 2560, 50368, 16384, 2688537600},   {"mpt-3b-s8192", 32, 2560, 50368, 8192, 2667566080},
    {"mpt-3b-s4096", 32, 2560, 50368, 4096, 2657080320},     {"mpt-3b-s1024", 32, 2560, 50368, 1024, 2649216000},
    {"mpt-3b-s512", 32, 2560, 50368, 512, 2647905280},       {"mpt-1b-s65536", 24, 2048, 50368, 65536, 1445974016},
    {"mpt-1b-s32768", 24, 2048, 50368, 32768, 1378865152},   {"mpt-1b-s16384", 24, 2048, 50368, 16384, 1345310720},
    {"mpt-1b-s8192", 24, 2048, 50368, 8192, 1328533504},     {"mpt-1b-s4096", 24, 2048, 50368, 4096, 1320144896},
    {"mpt-1b-s1024", 24, 2048, 50368, 1024, 1313853440},     {"mpt-1b-s512", 24, 2048, 50368, 512, 1312804864},
    {"mpt-760m-s32768", 24, 1536, 50368, 32768, 807656448},  {"mpt-760m-s16384", 24, 1536, 50368, 16384, 782490624},
    {"mpt-760m-s8192", 24, 1536, 50368, 8192, 769907712},    {"mpt-760m-s4096", 24, 1536, 50368, 4096, 763616256},
    {"mpt-760m-s2048", 24, 1536, 50368, 2048, 760470528},    {"mpt-760m-s1024", 24, 1536, 50368, 1024, 758897664},
    {"mpt-760m-s512", 24, 1536, 50368, 512, 758111232},      {"mpt-30b-s512", 48, 7168, 50368, 512, 29964204032},
    {"mpt-13b-s8192", 40, 5120, 50368, 8192, 12885411840},   {"mpt-7b-s16384", 32, 4096, 50368, 16384, 6717579264},
    {"mpt-760m-s65536", 24, 1536, 50368, 65536, 857988096},  {"mpt-350m-s65536", 24, 1024, 50368, 65536, 420997120},
    {"mpt-350m-s32768", 24, 1024, 50368, 32768, 387442688},  {"mpt-350m-s16384", 24, 1024, 50368, 16384, 370665472},
    {"mpt-350m-s8192", 24, 1024, 50368, 8192, 362276864},    {"mpt-350m-s4096", 24, 1024, 50368, 4096, 358082560},
    {"mpt-350m-s2048", 24, 1024, 50368, 2048, 355985408},    {"mpt-350m-s1024", 24, 1024, 50368, 1024, 354936832},
    {"mpt-350m-s512", 24, 1024, 50368, 512, 354412544},      {"mpt-125m-s65536", 12, 768, 50368, 65536, 174070272},
    {"mpt-125m-s32768", 12, 768, 50368, 32768, 148904448},   {"mpt-125m-s16384", 12, 768, 50368, 16384, 136321536},
    {"mpt-125m-s8192", 12, 768, 50368, 8192, 130030080},     {"mpt-125m-s4096", 12, 768, 50368, 4096, 126884352},
    {"mpt-125m-s2048", 12, 768, 50368, 2048, 125311488},     {"mpt-125m-s1024", 12, 768, 50368, 1024, 124525056},
    {"mpt-125m-s512", 12, 768, 50368, 512, 124131840},       {"mpt-13b-s512", 40, 5120, 50368, 512, 12846090240},
    {"mpt-7b-s512", 32, 4096, 50368, 512, 6652567552},
};

TEST(ParameterCount, PublishedCountsReproduceExactly) {
  for (const GptCount& row : kPublished) EXPECT_EQ(num_parameters(gpt(row)), row.parameters) << row.name;
}

// 12 L h^2 (1 + 13/(12 h) + (V + s)/(12 L h)) of Narayanan et al. 2021, which leaves out the final norm (2 h).
constexpr GptCount kFormula[] = {
    {"sc21-formula-22b", 48, 6144, 51200, 2048, 22074261504},
    {"sc21-formula-175b", 96, 12288, 51200, 2048, 174615822336},
    {"sc21-formula-530b", 105, 20480, 51200, 2048, 529600778240},
    {"sc21-formula-1000b", 128, 25600, 51200, 2048, 1008038707200},
};

TEST(ParameterCount, AgreesWithTheFormulaOfMegatron) {
  for (const GptCount& row : kFormula) EXPECT_EQ(num_parameters(gpt(row)) - 2 * row.hidden, row.parameters) << row.name;
}

TEST(ParameterCount, PresetsHaveThePublishedCounts) {
  struct {
    const char* preset;
    std::int64_t parameters;
  } const rows[] = {
      {"gpt2-124m", 124439808},     {"gpt2-355m", 354823168},        {"gpt2-774m", 774030080},    {"gpt2-1.5b", 1557611200},
      {"llama2-7b", 6738415616},    {"llama2-13b", 13015864320},     {"llama2-70b", 68976648192}, {"llama3-8b", 8030261248},
      {"llama3-70b", 70553706496},  {"llama3.1-405b", 405853388800}, {"llama3.2-1b", 1235814400}, {"qwen2.5-0.5b", 494032768},
      {"qwen2.5-1.5b", 1543714304}, {"qwen2.5-7b", 7615616512},      {"qwen3-0.6b", 596049920},   {"mistral-7b", 7241732096},
      {"olmo-1b", 1176764416},      {"gpt3-175b", 174604259328},
      {"olmo2-1b", 1484916736},     {"smollm2-135m", 134515008},
      {"phi3-mini", 3821079552},
  };
  for (const auto& [preset, parameters] : rows)
    EXPECT_EQ(num_parameters(model_preset(preset, "model.preset")), parameters) << preset;
}

TEST(ParameterCount, OurPresetsAreAsLargeAsTheirNames) {
  struct {
    const char* preset;
    std::int64_t parameters;
  } const rows[] = {{"llama-1m", 951840}, {"llama-15m", 14371200}, {"llama-60m", 61133824}};
  for (const auto& [preset, parameters] : rows) {
    const ModelConfig config = model_preset(preset, "model.preset");
    EXPECT_EQ(num_parameters(config), parameters) << preset;
    EXPECT_EQ(config.vocab_size, 50257) << "GPT-2's tokens must fit";
    EXPECT_EQ(config.layers % 4, 0);
    EXPECT_EQ(config.heads % 8, 0);
    EXPECT_EQ(config.kv_heads % 4, 0);
  }
}

TEST(ModelStats, PartsAddUp) {
  for (const std::string_view name : model_preset_names()) {
    const ModelConfig c = model_preset(name, "model.preset");
    EXPECT_EQ(num_parameters(c),
              embedding_parameters(c) + c.layers * block_parameters(c) + final_norm_parameters(c) + head_parameters(c))
        << name;
    EXPECT_LE(matmul_parameters(c), num_parameters(c)) << name;
    const PartFlops flops = part_flops_per_token(c, 1024);
    EXPECT_DOUBLE_EQ(model_flops_per_token(c, 1024), static_cast<double>(c.layers) * flops.block + flops.head) << name;
  }
}

TEST(ModelStats, EveryBiasAndNormCounts) {
  ModelConfig c = model_preset("llama-15m", "model.preset");
  const std::int64_t plain = block_parameters(c);  // widths: hidden 192, queries 256, keys and values 128, feed-forward 768
  c.qkv_bias = true;
  EXPECT_EQ(block_parameters(c) - plain, 256 + 128 + 128);
  c.output_bias = true;
  EXPECT_EQ(block_parameters(c) - plain, 512 + 192);
  c.mlp_bias = true;
  EXPECT_EQ(block_parameters(c) - plain, 704 + 768 + 768 + 192);
  c.qk_norm = QkNorm::kPerHead;
  EXPECT_EQ(block_parameters(c) - plain, 2432 + 32 + 32);
  c.qk_norm = QkNorm::kFullWidth;
  EXPECT_EQ(block_parameters(c) - plain, 2432 + 256 + 128);
  EXPECT_EQ(block_matmul_parameters(c), 2 * 192 * 256 + 2 * 192 * 128 + 3 * 192 * 768) << "biases are no factors of a product";
  const std::int64_t tied = num_parameters(c);
  c.tie_embeddings = false;
  EXPECT_EQ(num_parameters(c) - tied, 50257 * 192);
}

// Llama-3 8B at 8192 tokens: 1.71 GFLOP per block and 3.15 for the output layer, 1.84 blocks (Yeung et al. 2024's accounting).
TEST(ModelStats, FlopsOfLlama3AreThePublishedOnes) {
  const ModelConfig c = model_preset("llama3-8b", "model.preset");
  const PartFlops flops = part_flops_per_token(c, 8192);
  EXPECT_NEAR(flops.block, 1.71e9, 0.005e9);
  EXPECT_NEAR(flops.head, 3.15e9, 0.005e9);
  EXPECT_NEAR(flops.head / flops.block, 1.84, 0.005);
  EXPECT_DOUBLE_EQ(flops.embedding, 3.0 * 4096);
}

// 72 B L s h^2 (1 + s/(6h) + V/(12 h L)) per iteration (Korthikanti et al. 2022), here for one token.
TEST(ModelStats, FlopsAgreeWithThePublishedFormula) {
  const ModelConfig c = model_preset("gpt3-175b", "model.preset");
  const double s = 2048, h = 12288, layers = 96, v = 50257;
  const double expected = 72.0 * layers * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * h * layers));
  EXPECT_NEAR(model_flops_per_token(c, 2048) / expected, 1.0, 1e-12);
}

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
            "model.preset = \"gpt2-124\": no such model preset; did you mean \"gpt2-124m\"?; known are gpt2-124m, gpt2-355m, "
            "gpt2-774m, gpt2-1.5b, gpt3-175b, llama-1m, llama-15m, llama-60m, llama2-7b, llama2-13b, llama2-70b, llama3-8b, "
            "llama3-70b, llama3.1-8b, llama3.1-70b, llama3.1-405b, llama3.2-1b, "
            "qwen2.5-0.5b, qwen2.5-1.5b, qwen2.5-7b, qwen3-0.6b, mistral-7b, olmo-1b, "
            "olmo2-1b, smollm2-135m, phi3-mini; model.hf_config names the config.json of any other");
  for (const auto& [name, near] : {std::pair("llama-405b", "\"llama3.1-405b\""),
                                   {"llama-7b", "\"llama2-7b\""},
                                   {"llama-8b", "\"llama3-8b\" or \"llama3.1-8b\""},
                                   {"175b", "\"gpt3-175b\""},
                                   {"llama3", "\"llama3-8b\" or \"llama3-70b\" or \"llama3.1-8b\""},
                                   {"lama", "\"llama-1m\""}}) {
    const std::string text = error_of<ConfigError>([name = name] { model_preset(name, "model.preset"); });
    EXPECT_NE(text.find(fmt::format("no such model preset; did you mean {}", near)), text.npos) << text;
  }
}

TEST(ModelPresets, AnUnknownNameThatIsNearNoneNamesAll) {
  const std::string text = error_of<ConfigError>([] { model_preset("gemma-9b", "model.preset"); });
  EXPECT_TRUE(text.starts_with("model.preset = \"gemma-9b\": no such model preset; known are gpt2-124m, gpt2-355m, ")) << text;
}

TEST(ModelPresets, PublishedNamesAreTaken) {
  const std::pair<const char*, const char*> names[] = {
      {"gpt2", "gpt2-124m"},
      {"Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"},
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

TEST(ModelPresets, PresetsHaveTheirTraits) {
  EXPECT_TRUE(model_preset("gpt2-124m", "").tie_embeddings);
  EXPECT_EQ(model_preset("llama3.1-405b", "").rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(model_preset("llama3.2-1b", "").rope.factor, 32.0);
  EXPECT_TRUE(model_preset("qwen2.5-0.5b", "").qkv_bias);
  EXPECT_EQ(model_preset("qwen3-0.6b", "").query_width(), 2048) << "not the hidden size, 1024";
  EXPECT_EQ(model_preset("olmo-1b", "").norm, NormKind::kPlainLayerNorm);
}

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
