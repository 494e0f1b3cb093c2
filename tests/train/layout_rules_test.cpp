// Parallel equals serial beyond the matrix of parity_test.cpp: dropout, model families with more tensor ranks than key/value heads,
// explicit layers per stage, the other rank order, larger micro-batches, compute threads.

#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "support/layout_run.h"
#include "support/parity_cases.h"

namespace trident::testing {
namespace {

constexpr const char* kFourLayers = "model.num_hidden_layers=4";
constexpr const char* kFourGpt2Layers = "model.n_layer=4";

LayoutRun run(const std::string& config, const ParityCase& layout, const std::vector<std::string>& more) {
  std::vector<std::string> settings = layout.settings();
  settings.insert(settings.end(), more.begin(), more.end());
  LayoutRunOptions options;
  options.steps = 4;
  options.evaluate = true;
  return run_layout(config, settings, options);
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

TEST(DropoutRules, RecomputationDropsTheSame) {
  const ParityCase layout{2, 2, 1, true};
  const LayoutRun none = run(tiny_gpt2_config(), layout, {kFourGpt2Layers, "model.dropout=0.1"});
  for (const char* policy : {"full", "selective"}) {
    const std::string recompute = fmt::format("recompute.policy=\"{}\"", policy);
    EXPECT_EQ("", compare_bits(run(tiny_gpt2_config(), layout, {kFourGpt2Layers, "model.dropout=0.1", recompute}), none)) << policy;
  }
}

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
