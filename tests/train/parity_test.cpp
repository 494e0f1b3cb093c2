// Parallel equals serial: every layout trains the same model as one rank (within the tolerances of docs/numerics.md), and layouts
// that differ only in pipeline, schedule or ZeRO preset give the same bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>

#include "data/document_starts.h"
#include "support/layout_run.h"
#include "support/parity_cases.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/train/packed_samples.h"

namespace trident::testing {
namespace {

// Cases that `ctest -C Full` adds train 20 steps, others as many as show it: the numbers of a step depend on all that went before,
// and a wrong gradient is seen in the first step, whose gradients are compared parameter by parameter.
constexpr int kSteps = 20, kFewSteps = 8;

int steps_of_this_suite() {
  const std::string_view suite = ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
  return suite.starts_with("Full") ? kSteps : kFewSteps;
}

constexpr std::int32_t kEod = 5;

// The samples of tiny_llama_config() with the ends of documents in them: three tokens of 16 on average, two in a row among them.
void samples_with_documents(std::int64_t first, std::int64_t count, const SampleSpans& spans) {
  constexpr std::int64_t kSequence = 16;
  static const LoadSamples random = random_tokens(97, kSequence);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(kSequence * count)), targets(tokens.size());
  random(first, count, {.tokens = tokens, .targets = targets});
  for (std::vector<std::int32_t>* ids : {&tokens, &targets})
    for (std::int32_t& id : *ids) id = id % 5 == 0 ? kEod : id;
  if (!spans.tokens.empty()) std::ranges::copy(tokens, spans.tokens.begin());
  if (!spans.targets.empty()) std::ranges::copy(targets, spans.targets.begin());
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<std::int32_t> inputs, begins;
    for (std::int64_t s = 0; s < kSequence; ++s) inputs.push_back(tokens[static_cast<std::size_t>(s * count + i)]);
    find_behind_eod(inputs, kEod, begins);
    mark_documents(begins, true, kSequence, i, count, spans);
  }
}

// Runs of this process by what they ran; one process runs many cases against the same references.
class Runs {
 public:
  const LayoutRun& get(const std::string& config, std::vector<std::string> settings) {
    std::string key = config;
    for (const std::string& s : settings) key += '\n' + s;
    const auto found = runs_.find(key);
    if (found != runs_.end()) return found->second;
    LayoutRunOptions options;
    options.steps = steps_of_this_suite();
    options.evaluate = true;
    if (key.find("reset_attention_mask") != key.npos) options.load = samples_with_documents;
    return runs_.emplace(key, run_layout(config, settings, options)).first->second;
  }

 private:
  std::map<std::string, LayoutRun> runs_;
};

class ParityTest : public ::testing::TestWithParam<ParityCase> {
 protected:
  static void SetUpTestSuite() { runs_ = std::make_unique<Runs>(); }
  static void TearDownTestSuite() { runs_.reset(); }

  static const LayoutRun& run(const std::string& config, const ParityCase& c, const std::vector<std::string>& more = {}) {
    return runs_->get(config, plus(c.settings(), more));
  }
  static void expect_equal_to_one_rank(const LayoutRun& run, const LayoutRun& one) {
    EXPECT_EQ("", compare_losses(run, one));
    EXPECT_EQ("", compare_gradients(run.gradients, one.gradients));
    EXPECT_NEAR(run.eval_loss, one.eval_loss, 1e-6 * one.eval_loss);
    for (const auto& [name, values] : one.initial)
      EXPECT_EQ(values, run.initial.at(name)) << name << ": initial weights depend on the layout";
    EXPECT_EQ(run.planned_bytes, run.high_water) << "arena: planned and granted bytes by rank";
  }

 private:
  static std::unique_ptr<Runs> runs_;
};
std::unique_ptr<Runs> ParityTest::runs_;

std::string case_name(const ::testing::TestParamInfo<ParityCase>& info) { return info.param.name(); }

// The cases of the matrix that a filter keeps.
template <class Filter> std::vector<ParityCase> some(Filter filter) {
  std::vector<ParityCase> kept;
  for (const ParityCase& c : parity_cases()) {
    if (filter(c)) kept.push_back(c);
  }
  return kept;
}

using Llama = ParityTest;
TEST_P(Llama, EqualsOneRank) {
  const LayoutRun& layout = run(tiny_llama_config(), GetParam());
  expect_equal_to_one_rank(layout, run(tiny_llama_config(), ParityCase{}));
  EXPECT_EQ("", compare_bits(layout, run(tiny_llama_config(), GetParam().without_pipeline())));
}
INSTANTIATE_TEST_SUITE_P(Matrix, Llama, ::testing::ValuesIn(parity_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(FullMatrix, Llama, ::testing::ValuesIn(parity_cases()), case_name);

TEST(ParityMatrix, Has154Layouts) { EXPECT_EQ(parity_cases().size(), 154u); }

// Tied embeddings, LayerNorm, biases, learned positions: 24 layouts with both ends of the tied weight together and apart.
std::vector<ParityCase> gpt2_cases() {
  return some([](const ParityCase& c) {
    const int ranks = c.tensor * c.pipeline * c.data;
    if (c.tensor > 1 && !c.sequence_parallel && c.data > 1) return false;
    return ranks == 8
               ? c.tensor == 2 && c.pipeline == 2 && c.schedule != "gpipe"
               : ranks == 4 && c.tensor != 4 && (c.data == 1 || c.zero == "zero1" || c.zero == "zero3") && c.schedule != "gpipe";
  });
}
using Gpt2 = ParityTest;
TEST_P(Gpt2, EqualsOneRank) {
  const LayoutRun& layout = run(tiny_gpt2_config(), GetParam());
  expect_equal_to_one_rank(layout, run(tiny_gpt2_config(), ParityCase{}));
  EXPECT_EQ("", compare_bits(layout, run(tiny_gpt2_config(), GetParam().without_pipeline())));
}
INSTANTIATE_TEST_SUITE_P(Tied, Gpt2, ::testing::ValuesIn(gpt2_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(FullTied, Gpt2, ::testing::ValuesIn(gpt2_cases()), case_name);

// An update that looks at signs alone.
using Lion = ParityTest;
TEST_P(Lion, EqualsOneRank) {
  const std::vector<std::string> lion{"optimizer.type=lion", "optimizer.betas=[0.95,0.98]", "optimizer.lr=1e-4"};
  const LayoutRun& layout = run(tiny_llama_config(), GetParam(), lion);
  expect_equal_to_one_rank(layout, run(tiny_llama_config(), ParityCase{}, lion));
  EXPECT_EQ("", compare_bits(layout, run(tiny_llama_config(), GetParam().without_pipeline(), lion)));
}
INSTANTIATE_TEST_SUITE_P(Layouts, Lion,
                         ::testing::Values(ParityCase{2, 1, 1, true}, ParityCase{1, 4, 1, false, "zero1", "1f1b"},
                                           ParityCase{1, 2, 2, false, "zero2", "1f1b"}, ParityCase{2, 2, 2, true, "zero3", "1f1b"},
                                           ParityCase{8, 1, 1, false}, ParityCase{1, 1, 4, false, "ddp"}),
                         case_name);

// Recomputation changes no bit.
std::vector<ParityCase> recompute_cases() {
  return {{1, 1, 1, false, "zero1", "1f1b"}, {2, 1, 1, true, "zero1", "1f1b"},  {2, 1, 1, false, "zero1", "1f1b"},
          {1, 2, 1, false, "zero1", "interleaved"}, {1, 2, 2, false, "zero3", "1f1b"}, {2, 2, 2, true, "zero2", "1f1b"}};
}
using Recompute = ParityTest;
TEST_P(Recompute, SelectiveEqualsNone) {
  EXPECT_EQ("", compare_bits(run(tiny_llama_config(), GetParam(), {"recompute.policy=\"selective\""}),
                             run(tiny_llama_config(), GetParam())));
}
TEST_P(Recompute, FullEqualsNone) {
  EXPECT_EQ(
      "", compare_bits(run(tiny_llama_config(), GetParam(), {"recompute.policy=\"full\""}), run(tiny_llama_config(), GetParam())));
}
INSTANTIATE_TEST_SUITE_P(Policies, Recompute, ::testing::ValuesIn(recompute_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(FullPolicies, Recompute, ::testing::ValuesIn(recompute_cases()), case_name);

// Documents in a sequence, positions that restart, targets that do not count, and a window: in every layer, or, `mixed`, in the
// second half of them.
std::string documents_config(bool mixed) {
  std::string config = tiny_llama_config();
  config.replace(config.find("llama"), 5, mixed ? "qwen2" : "mistral");
  const std::string half = mixed ? R"("use_sliding_window": true, "max_window_layers": 8, )" : "";
  config.replace(config.find("\"rms_norm_eps\""), 0, half + R"("sliding_window": 6, )");
  return config;
}
std::vector<ParityCase> document_cases(bool all) {
  int n = 0;
  return some([&](const ParityCase& c) {
    const int ranks = c.tensor * c.pipeline * c.data;
    const bool kept = ranks == 8   ? c.tensor == 2 && c.pipeline == 2 && c.sequence_parallel
                      : ranks == 4 ? c.pipeline == 4 || c.tensor == 4 || (c.pipeline == 2 && c.data == 2 && c.zero == "zero2")
                                   : ranks == 2 && c.zero == "zero3";
    return kept && (++n % 3 == 0 || all);
  });
}
// At a rate of 3e-4 the 19th gradient is 24 times its neighbours, and rounding moves its norm by 1e-5; at 1e-4 no step is like
// that.
using Documents = ParityTest;
TEST_P(Documents, EqualsOneRank) {
  const std::vector<std::string> documents{"data.reset_attention_mask=true", "data.reset_position_ids=true",
                                           "data.eod_mask_loss=true", fmt::format("data.eod={}", kEod),
                                           "optimizer.lr=1e-4"};
  const std::string config = documents_config(GetParam().zero == "zero1");  // three of eight
  const LayoutRun& layout = run(config, GetParam(), documents);
  expect_equal_to_one_rank(layout, run(config, ParityCase{}, documents));
  EXPECT_EQ("", compare_bits(layout, run(config, GetParam().without_pipeline(), documents)));
  std::vector<std::string> more = documents;
  more.insert(more.end(), {"recompute.policy=full", "recompute.head_chunk=5"});
  expect_equal_to_one_rank(run(config, GetParam(), more), run(config, ParityCase{}, documents));
}
INSTANTIATE_TEST_SUITE_P(Masks, Documents, ::testing::ValuesIn(document_cases(false)), case_name);
TEST(ParityMatrix, Has24LayoutsWithDocuments) { EXPECT_EQ(document_cases(true).size(), 24u); }
INSTANTIATE_TEST_SUITE_P(FullMasks, Documents, ::testing::ValuesIn(document_cases(true)), case_name);

TEST(Packed, LossAndGradientsAreThoseOfItsSequencesAloneInEveryLayout) {
  const TemporaryFolder folder;
  const PackStats stats = write_packs(folder / "alone", folder / "packs");
  const std::int64_t alone_count = stats.sequences + stats.left_out;
  ASSERT_LT(stats.packs, 12);
  const auto run = [&](const ParityCase& layout, const char* prefix, std::int64_t global, const char* more = "batch.micro=1") {
    std::vector<std::string> settings = layout.settings();
    settings.insert(settings.end(), {"data.samples=packed", "batch.micro=1", fmt::format("batch.global={}", global), more});
    LayoutRunOptions options;
    options.steps = 3;
    options.load = samples_of_packs(folder / prefix);
    return run_layout(tiny_llama_config(), settings, options);
  };
  // One step takes all, which is the mean over all targets that count, however they are packed.
  const LayoutRun alone = run({}, "alone", alone_count), packed = run({}, "packs", stats.packs);
  EXPECT_NEAR(packed.losses.front(), alone.losses.front(), 1e-6 * alone.losses.front());
  EXPECT_EQ("", compare_gradients(packed.gradients, alone.gradients));
  const LayoutRun eight = run({}, "packs", 8);
  for (const ParityCase& layout : {ParityCase{1, 2, 2, false, "zero3", "1f1b"}, {1, 4, 1, false, "zero1", "interleaved"},
                                   {2, 2, 2, true, "zero1", "gpipe"}, {1, 1, 4, false, "zero2", "1f1b"}}) {
    const LayoutRun other = run(layout, "packs", 8);
    EXPECT_EQ("", compare_losses(other, eight)) << layout.name();
    EXPECT_EQ("", compare_gradients(other.gradients, eight.gradients)) << layout.name();
    EXPECT_EQ("", compare_bits(other, run(layout.without_pipeline(), "packs", 8))) << layout.name();
  }
  EXPECT_EQ("", compare_bits(run({}, "packs", 8, "recompute.policy=full"), eight));
}

// Logits in chunks are those of the whole; chunks are a matter of the head alone, so the bits are equal where they were.
std::vector<ParityCase> head_chunk_cases() {
  return {{1, 1, 1, false, "zero1", "1f1b"}, {2, 2, 2, true, "zero1", "1f1b"}, {2, 2, 2, false, "zero3", "interleaved"}};
}
using HeadChunk = ParityTest;
TEST_P(HeadChunk, EqualsOneRankAndTheWhole) {
  const std::vector<std::string> chunk{"recompute.head_chunk=5"};
  for (const std::string& config : {tiny_llama_config(), tiny_gpt2_config()}) {
    const LayoutRun& layout = run(config, GetParam(), chunk);
    expect_equal_to_one_rank(layout, run(config, ParityCase{}));
    EXPECT_EQ("", compare_bits(layout, run(config, GetParam().without_pipeline(), chunk)));
  }
}
INSTANTIATE_TEST_SUITE_P(Chunks, HeadChunk, ::testing::ValuesIn(head_chunk_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(FullChunks, HeadChunk, ::testing::ValuesIn(head_chunk_cases()), case_name);

// In bf16 only the bit equalities hold.
std::vector<ParityCase> bf16_cases() {
  return {{1, 2, 1, false, "zero1", "gpipe"}, {1, 4, 1, false, "zero1", "1f1b"},      {1, 2, 1, false, "zero1", "interleaved"},
          {1, 1, 2, false, "zero1", "1f1b"},  {1, 1, 2, false, "shard_grad_op", "1f1b"}, {1, 1, 4, false, "zero3", "1f1b"},
          {2, 2, 1, false, "zero1", "1f1b"},  {2, 2, 1, true, "zero1", "interleaved"},   {2, 1, 2, true, "zero3", "1f1b"},
          {1, 2, 2, false, "zero3", "gpipe"}, {2, 2, 2, true, "zero1", "1f1b"},          {2, 2, 2, true, "zero3", "interleaved"}};
}
using Bf16 = ParityTest;
TEST_P(Bf16, BitsDoNotDependOnPipelineOrZero) {
  const std::vector<std::string> bf16{"precision.compute=\"bf16\""};
  EXPECT_EQ(
      "", compare_bits(run(tiny_llama_config(), GetParam(), bf16), run(tiny_llama_config(), GetParam().without_pipeline(), bf16)));
}
INSTANTIATE_TEST_SUITE_P(Bits, Bf16, ::testing::ValuesIn(bf16_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(FullBits, Bf16, ::testing::ValuesIn(bf16_cases()), case_name);

// In fp16 likewise, the gradients multiplied by a scale.
std::vector<ParityCase> fp16_cases() {
  return {{1, 2, 2, false, "zero3", "1f1b"}, {2, 2, 2, true, "zero1", "1f1b"}, {2, 2, 2, false, "zero3", "interleaved"}};
}
using Fp16 = ParityTest;
TEST_P(Fp16, BitsDoNotDependOnPipelineOrZero) {
  const std::vector<std::string> fp16{"precision.compute=\"fp16\"", "precision.loss_scale=1024"};
  EXPECT_EQ(
      "", compare_bits(run(tiny_llama_config(), GetParam(), fp16), run(tiny_llama_config(), GetParam().without_pipeline(), fp16)));
}
INSTANTIATE_TEST_SUITE_P(Bits, Fp16, ::testing::ValuesIn(fp16_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(FullBits, Fp16, ::testing::ValuesIn(fp16_cases()), case_name);

// grad_sync and param_gather are legal with every preset; equal grad_sync means equal bits.
using Overrides = ParityTest;
TEST_P(Overrides, EqualGradSyncEqualBits) {
  for (const char* gather : {"per_use", "per_micro_batch", "resident"}) {
    const std::string param_gather = fmt::format("parallel.param_gather=\"{}\"", gather);
    ParityCase ddp = GetParam();
    ddp.zero = "ddp";
    for (const char* sync : {"\"step\"", "{\"every\":1}", "{\"every\":3}"}) {
      const std::string grad_sync = fmt::format("parallel.grad_sync={}", sync);
      EXPECT_EQ("", compare_bits(run(tiny_llama_config(), GetParam(), {grad_sync, param_gather}),
                                 run(tiny_llama_config(), ddp, {grad_sync})))
          << grad_sync << ' ' << param_gather;
    }
  }
}
std::vector<ParityCase> override_cases() {
  std::vector<ParityCase> cases;
  for (const char* zero : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"}) cases.push_back({1, 2, 2, false, zero, "1f1b"});
  cases.push_back({2, 1, 2, true, "zero3", "1f1b"});
  cases.push_back({1, 2, 2, false, "zero3", "interleaved"});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Presets, Overrides, ::testing::ValuesIn(override_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(FullPresets, Overrides, ::testing::ValuesIn(override_cases()), case_name);

}  // namespace
}  // namespace trident::testing
