// Runs in which only some parameters train: what trains does so as in full training, and the rest stays as it is; in every layout
// it is the matrix of adapter_parity_test.cpp that says so.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "model/config/hf_tensors.h"
#include "support/layout_run.h"
#include "support/parity_cases.h"
#include "tests/support/error_text.h"

namespace trident::testing {
namespace {

constexpr const char* kLayers = "model.num_hidden_layers=4";
const std::string kTied = R"(model={"model_type": "llama", "vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 96, "max_position_embeddings": 64,
    "tie_word_embeddings": true})";

LayoutRun run_frozen(const std::vector<std::string>& more, const ParityCase& layout = {},
                     const std::string& config = tiny_llama_config()) {
  LayoutRun run = run_layout(config, plus(layout.settings(), more));
  EXPECT_EQ(run.planned_bytes, run.high_water);
  return run;
}

std::string only(const std::string& pattern) { return "train.only=" + to_json_text(JsonValue(pattern)); }
std::string freeze(const std::string& pattern) { return "train.freeze=" + to_json_text(JsonValue(pattern)); }

void expect_unchanged(const LayoutRun& run) {
  ASSERT_EQ(run.frozen.size(), run.frozen_before.size());
  for (const auto& [name, values] : run.frozen_before)
    EXPECT_EQ(0, std::memcmp(values.data(), run.frozen.at(name).data(), values.size() * sizeof(float))) << name;
}

bool changed(const LayoutRun& run, const std::string& name) { return run.weights.at(name) != run.initial.at(name); }

std::string refusal(const std::vector<std::string>& settings) {
  return error_of<ConfigError>([&] { run_layout(tiny_llama_config(), settings); });
}

// The step before the first update sees the same weights: gradients are those of full training, bit for bit.
TEST(FrozenParameters, WhatTrainsHasTheGradientsOfFullTraining) {
  const LayoutRun full = run_frozen({kLayers});
  for (const char* pattern :
       {".*", R"(model\.layers\.[23]\..*)", R"(.*norm\.weight)", R"(model\.embed_tokens\.weight)", R"(lm_head\.weight)",
        ".*q_proj.*", R"(.*layers\.1\.mlp\.up_proj.*)", ".*(o_proj|down_proj).*", R"(model\.layers\.2\.self_attn.*)"}) {
    SCOPED_TRACE(pattern);
    const LayoutRun some = run_frozen({kLayers, only(pattern)});
    EXPECT_EQ(some.losses[0], full.losses[0]);
    ASSERT_FALSE(some.gradients.empty());
    EXPECT_EQ(some.gradients.size(), some.weights.size());
    for (const auto& [name, values] : some.gradients) {
      EXPECT_EQ(values, full.gradients.at(name)) << name;
      EXPECT_TRUE(changed(some, name)) << name;
    }
    EXPECT_EQ(some.gradients.size() + some.frozen.size(), full.gradients.size());
    expect_unchanged(some);
  }
}

TEST(FrozenParameters, FreezeIsTheRestOfOnly) {
  const LayoutRun frozen = run_frozen({kLayers, freeze(R"(model\.(embed_tokens|layers\.[01]\.).*)")});
  EXPECT_EQ("", compare_bits(frozen, run_frozen({kLayers, only(R"((model\.layers\.[23]|model\.norm|lm_head).*)")})));
}

TEST(FrozenParameters, SixteenBitValuesStayAsTheyAre) {
  const std::vector<std::string> settings{kLayers, "precision.compute=\"bf16\"", only(R"(model\.layers\.[23]\..*(q_proj|mlp).*)")};
  const LayoutRun one = run_frozen(settings), full = run_frozen({kLayers, "precision.compute=\"bf16\""});
  EXPECT_EQ(one.losses[0], full.losses[0]);
  for (const auto& [name, values] : one.gradients) EXPECT_EQ(values, full.gradients.at(name)) << name;
  expect_unchanged(one);
}

TEST(FrozenParameters, ATiedWeightTrainsAsOneUnderEitherName) {
  const LayoutRun lookup = run_frozen({kTied, only(R"(model\.embed_tokens.*)")}), head = run_frozen({kTied, only("lm_head.*")});
  EXPECT_EQ("", compare_bits(lookup, head));
  EXPECT_TRUE(changed(lookup, "model.embed_tokens.weight"));
  EXPECT_EQ("", compare_bits(run_frozen({kTied, only("lm_head.*")}, {1, 2, 1}), head));
  const LayoutRun frozen = run_frozen({kTied, freeze("lm_head.*")});
  EXPECT_EQ("", compare_bits(run_frozen({kTied, freeze("lm_head.*")}, {1, 2, 1}), frozen));
  EXPECT_EQ(frozen.frozen.size(), 1u);
  expect_unchanged(frozen);
}

TEST(FrozenParameters, FusedTensorsOfGpt2TrainWhole) {
  const std::string layers = "model.n_layer=4", some = only(R"(transformer\.h\.[12]\.(attn\.c_attn\.bias|mlp\.c_fc\.weight))");
  const LayoutRun one = run_frozen({layers, some}, {}, tiny_gpt2_config()), full = run_frozen({layers}, {}, tiny_gpt2_config());
  EXPECT_EQ(one.gradients.size(), 4u);
  for (const auto& [name, values] : one.gradients) EXPECT_EQ(values, full.gradients.at(name)) << name;
  expect_unchanged(one);
  EXPECT_EQ("", compare_losses(run_frozen({layers, some}, {2, 2, 1, true}, tiny_gpt2_config()), one));
}

std::int64_t total_bytes(const LayoutRun& run) { return run.planned_bytes.at(0); }

TEST(FrozenParameters, NothingIsBookedForWhatStays) {
  const std::string bf16 = "precision.compute=\"bf16\"", two = "model.num_hidden_layers=2";
  const LayoutRun full = run_frozen({two, bf16}), frozen = run_frozen({two, bf16, only(R"(model\.norm\.weight)")});
  std::int64_t elements = 0;
  for (const HfTensor& tensor : hf_tensors(full.plan.model)) {
    std::int64_t n = 1;
    for (const std::int64_t extent : tensor.shape) n *= extent;
    elements += n;
  }
  // Master, gradient and two moments of 4 bytes each; and what the blocks saved.
  EXPECT_GT(total_bytes(full) - total_bytes(frozen), (elements - 64) * 16);
}

TEST(FrozenParameters, StagesBelowTheLowestThatTrainsRunNoBackward) {
  const LayoutRun run = run_frozen({kLayers, only(R"(model\.layers\.3\..*)")}, {1, 4, 1});
  const std::vector<StepProgram>& programs = run.plan.step_programs;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    EXPECT_EQ(programs[rank].has(InstructionKind::kBackward), rank == 3) << rank;
    EXPECT_FALSE(programs[rank].has(InstructionKind::kSendGradient)) << rank;
    EXPECT_FALSE(programs[rank].has(InstructionKind::kRecvGradient)) << rank;
    EXPECT_EQ(programs[rank].has(InstructionKind::kReduceGradients), rank == 3) << rank;
    EXPECT_EQ(programs[rank].num_activation_slots, std::vector<int>{1}) << rank;
  }
  const double full = run_frozen({kLayers}).plan.predicted_flops_per_token();
  EXPECT_LT(run.plan.predicted_flops_per_token(), 0.6 * full);
  EXPECT_GT(run.plan.predicted_flops_per_token(), 0.34 * full);
}

TEST(FrozenParameters, StagesAreBalancedByWhatTheyCompute) {
  const LayoutRun full = run_frozen({"model.num_hidden_layers=8"}, {1, 2, 1});
  const LayoutRun some = run_frozen({"model.num_hidden_layers=8", only(R"((model\.layers\.[4-7]|lm_head).*)")}, {1, 2, 1});
  EXPECT_GT(some.plan.step_spec.units_of_stage.front().size(), full.plan.step_spec.units_of_stage.front().size());
}

TEST(FrozenParameters, PatternsThatMeanNothingAreRefused) {
  expect_parts(refusal({kLayers, only("q_proj")}),
               {"train.only = \"q_proj\": no tensor of the model has this name", "write \"(.*[.])?q_proj([.].*)?\" for 4 tensors"});
  expect_parts(refusal({kLayers, only("layers.1")}), {"write \"(.*[.])?layers[.]1([.].*)?\" for 9 tensors"});
  expect_parts(refusal({kLayers, freeze("model.embed_token.weight")}), {"train.freeze", "model.embed_tokens.weight"});
  expect_parts(refusal({kLayers, only("q_porj")}), {"the nearest are model.layers.0.self_attn.q_proj.weight"});
  expect_parts(refusal({kLayers, freeze("model.layer.0.*")}), {"the nearest are model.layers.0."});
  expect_parts(refusal({kLayers, freeze(".*")}), {"train.freeze", "freezes every tensor"});
  expect_parts(refusal({kLayers, only("(")}), {"train.only = \"(\": is no regular expression"});
  expect_parts(refusal({kLayers, only(R"((a)\1)")}), {"is no regular expression"});
  expect_parts(refusal({kLayers, only(std::string(1001, 'a'))}), {"has more than 1000 bytes"});
  expect_parts(refusal({kLayers, only(".*"), freeze(".*")}), {"train.freeze", "train.only", "remove one"});
  EXPECT_NE("no error", refusal({kLayers, only("(((.*)*)*)*x")}));  // which takes no exponential time
}

// Parallel equals serial beyond the matrix of parity_test.cpp: dropout, model families with more tensor ranks than key/value heads,
// explicit layers per stage, the other rank order, larger micro-batches, compute threads.

constexpr const char* kFourLayers = "model.num_hidden_layers=4";
constexpr const char* kFourGpt2Layers = "model.n_layer=4";

LayoutRun run(const std::string& config, const ParityCase& layout, const std::vector<std::string>& more) {
  LayoutRunOptions options;
  options.steps = 4;
  options.evaluate = true;
  return run_layout(config, plus(layout.settings(), more), options);
}

void expect_equal(const LayoutRun& layout, const LayoutRun& reference) {
  EXPECT_EQ("", compare_losses(layout, reference));
  EXPECT_EQ("", compare_gradients(layout.gradients, reference.gradients));
  EXPECT_NEAR(layout.eval_loss, reference.eval_loss, 1e-6 * reference.eval_loss);
}

std::string case_name(const ::testing::TestParamInfo<ParityCase>& info) { return info.param.name(); }

// ---- dropout
// ------------------------------------------------------------------------------------------------------------------------

// A mask belongs to (step, unit, place, sample, position, channel): whoever computes that element drops the same.
class DropoutParity : public ::testing::TestWithParam<ParityCase> {};
TEST_P(DropoutParity, MasksDoNotDependOnTheLayout) {
  const std::vector<std::string> llama{kFourLayers, "model.dropout=0.1"}, gpt2{kFourGpt2Layers, "model.dropout=0.1"};
  expect_equal(run(tiny_llama_config(), GetParam(), llama), run(tiny_llama_config(), {}, llama));
  expect_equal(run(tiny_gpt2_config(), GetParam(), gpt2), run(tiny_gpt2_config(), {}, gpt2));
}
INSTANTIATE_TEST_SUITE_P(Layouts, DropoutParity,
                         ::testing::Values(ParityCase{2, 1, 1, false}, ParityCase{2, 1, 1, true}, ParityCase{4, 1, 1, true},
                                           ParityCase{1, 2, 1}, ParityCase{1, 2, 1, false, "zero1", "interleaved"},
                                           ParityCase{1, 1, 2, false, "zero1"}, ParityCase{1, 1, 2, false, "zero3"},
                                           ParityCase{2, 2, 2, true, "zero2"}),
                         case_name);

TEST(DropoutRules, MicroBatchesDropByTheirSamples) {
  const std::vector<std::string> settings{kFourLayers, "model.dropout=0.1"};
  expect_equal(run(tiny_llama_config(), {2, 1, 2, true}, {kFourLayers, "model.dropout=0.1", "batch.micro=2"}),
               run(tiny_llama_config(), {}, settings));
}

TEST(DropoutRules, DropsAtAll) {
  const LayoutRun dropped = run(tiny_llama_config(), {}, {kFourLayers, "model.dropout=0.1"});
  const LayoutRun whole = run(tiny_llama_config(), {}, {kFourLayers});
  EXPECT_GT(std::abs(dropped.losses[0] - whole.losses[0]), 1e-4);
}

// ---- families with more tensor ranks than key/value heads
// -------------------------------------------------------------------------

struct Family {
  std::string name, model;
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

std::vector<Family> families() {
  const std::string common = R"("vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 64, "rms_norm_eps": 1e-5)";
  return {{"llama_tied", R"({"model_type": "llama", "tie_word_embeddings": true, )" + common + "}"},
          {"qwen2", R"({"model_type": "qwen2", "tie_word_embeddings": true, )" + common + "}"},
          {"qwen3", R"({"model_type": "qwen3", "tie_word_embeddings": false, "head_dim": 16, )" + common + "}"},
          {"mistral", R"({"model_type": "mistral", "tie_word_embeddings": false, "head_dim": 4, )" + common + "}"},
          {"olmo2", R"({"model_type": "olmo2", )" + common + "}"},
          {"phi3", R"({"model_type": "phi3", "partial_rotary_factor": 0.5, )" + common + "}"}};
}

class FamilyParity : public ::testing::TestWithParam<Family> {};
TEST_P(FamilyParity, EveryLayoutEqualsOneRank) {
  const std::vector<std::string> model{"model=" + GetParam().model};
  const LayoutRun one = run(tiny_llama_config(), {}, model);
  for (const ParityCase& layout : {ParityCase{4, 1, 1, false}, ParityCase{8, 1, 1, true}, ParityCase{4, 2, 1, true},
                                   ParityCase{4, 1, 2, true, "zero3"}, ParityCase{2, 2, 2, true, "zero2", "interleaved"}}) {
    SCOPED_TRACE(layout.name());
    expect_equal(run(tiny_llama_config(), layout, model), one);
  }
}
INSTANTIATE_TEST_SUITE_P(Models, FamilyParity, ::testing::ValuesIn(families()), [](const auto& info) { return info.param.name; });

// ---- the rest of the layout
// ----------------------------------------------------------------------------------------------------------

TEST(LayoutRules, LayersPerStageMayBeAnything) {
  const LayoutRun one = run(tiny_gpt2_config(), {}, {"model.n_layer=5"});
  for (const char* layers : {"[1,4]", "[4,1]"}) {
    SCOPED_TRACE(layers);
    const LayoutRun split = run(tiny_gpt2_config(), {1, 2, 1}, {"model.n_layer=5", fmt::format("parallel.layers={}", layers)});
    expect_equal(split, one);
    EXPECT_EQ("", compare_bits(split, one));
  }
  SCOPED_TRACE("interleaved");
  expect_equal(run(tiny_gpt2_config(), {2, 2, 1, true, "zero1", "interleaved"}, {"model.n_layer=5", "parallel.layers=[1,1,2,1]"}),
               one);
}

TEST(LayoutRules, TheRankOrderChangesNoBit) {
  const ParityCase layout{2, 2, 2, true, "zero3"};
  const std::vector<std::string> model{kFourGpt2Layers};
  EXPECT_EQ("", compare_bits(run(tiny_gpt2_config(), layout, {kFourGpt2Layers, "parallel.order=\"tp-cp-pp-dp\""}),
                             run(tiny_gpt2_config(), layout, model)));
}

TEST(LayoutRules, OverlapChangesNoBit) {
  for (const ParityCase& layout : {ParityCase{1, 2, 2, false, "zero3", "interleaved"}, ParityCase{2, 2, 2, true, "zero2"},
                                   ParityCase{1, 1, 4, false, "zero1"}}) {
    SCOPED_TRACE(layout.name());
    EXPECT_EQ("", compare_bits(run(tiny_llama_config(), layout, {kFourLayers, "parallel.overlap=false"}),
                               run(tiny_llama_config(), layout, {kFourLayers})));
  }
}

// Buckets cut elsewhere, the same sums: a bucket never changes what a gradient is.
TEST(LayoutRules, SmallBucketsChangeNoBit) {
  const ParityCase layout{2, 1, 2, true, "zero2"};
  EXPECT_EQ("", compare_bits(run(tiny_llama_config(), layout, {kFourLayers, "parallel.bucket_mb=0.01"}),
                             run(tiny_llama_config(), layout, {kFourLayers})));
}

// Four micro-batches, reduced after the third and after the fourth.
TEST(LayoutRules, AShortLastWindowIsReducedToo) {
  const LayoutRun one = run(tiny_llama_config(), {}, {kFourLayers});
  for (const char* zero : {"ddp", "zero3"}) {
    SCOPED_TRACE(zero);
    expect_equal(run(tiny_llama_config(), {1, 1, 2, false, zero}, {kFourLayers, "parallel.grad_sync={\"every\":3}"}), one);
  }
}

TEST(LayoutRules, LargerMicroBatchesAreTheSameBatch) {
  const LayoutRun one = run(tiny_llama_config(), {}, {kFourLayers});
  expect_equal(run(tiny_llama_config(), {}, {kFourLayers, "batch.micro=8"}), one);
  expect_equal(run(tiny_llama_config(), {2, 2, 2, true, "zero1"}, {kFourLayers, "batch.micro=2"}), one);
}

TEST(LayoutRules, ComputeThreadsAreTolerable) {
  expect_equal(run(tiny_llama_config(), {2, 1, 1, true}, {kFourLayers, "run.threads_per_rank=2"}),
               run(tiny_llama_config(), {}, {kFourLayers}));
}

}  // namespace
}  // namespace trident::testing
