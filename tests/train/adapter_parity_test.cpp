// Adapters, and parameters that train beside frozen ones: every layout trains them as one rank does, and layouts that differ only
// in pipeline, schedule, ZeRO preset or recomputation give the same bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/adapter_spec.h"
#include "core/philox.h"
#include "support/layout_run.h"
#include "support/parity_cases.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/train/packed_samples.h"

namespace trident::testing {
namespace {

using Settings = std::vector<std::string>;

// A case names its model and what of it trains.
struct TunedModel {
  const char* name;
  Settings settings;
  bool gpt2 = false;
};

TunedModel tuned(std::string_view name) {
  const bool dora = name.starts_with("dora");
  const Settings lora{dora ? "adapter.type=dora" : "adapter.type=lora", "adapter.r=4", "adapter.alpha=6"};
  const auto with = [&](const char* word, Settings more, bool gpt2 = false) {
    more.insert(more.begin(), lora.begin(), lora.end());
    return TunedModel{word, more, gpt2};
  };
  const std::string one_kv_head_for_two = "model.num_key_value_heads=2";
  const TunedModel all[] = {
      with("lora", {}),
      with("dropout", {"adapter.dropout=0.1", "model.dropout=0.1"}),
      with("few_kv_heads", {one_kv_head_for_two, "adapter.dropout=0.2"}),
      with("keys", {one_kv_head_for_two, "adapter.target_modules=[\"k_proj\"]"}),
      with("query_value", {"adapter.target_modules=[\"q_proj\",\"v_proj\"]", "adapter.rslora=true"}),
      with("outputs", {"adapter.target_modules=[\"o_proj\",\"down_proj\"]", "model.attention_bias=true"}),
      with("upper_layers", {"adapter.layers=[5,6,7]"}),
      with("lowest_layer", {"adapter.layers=[0]"}),
      with("tied", {"model.tie_word_embeddings=true", "recompute.head_chunk=5"}),
      with("qwen2", {"model.model_type=qwen2", "adapter.exclude_modules=[\"up_proj\"]"}),
      with("phi3", {"model.model_type=phi3", "model.pad_token_id=0"}),
      with("gpt2", {}, true),
      with("saved", {"adapter.target_modules=[\"q_proj\"]",
                     "adapter.modules_to_save=[\"embed_tokens\",\"lm_head\",\"input_layernorm\"]"}),
      with("saved_head", {"adapter.modules_to_save=[\"lm_head\"]", "model.tie_word_embeddings=true", "adapter.layers=[6]"}),
      with("dora", {}),
      with("dora_dropout", {"adapter.dropout=0.1", "model.dropout=0.1"}),
      with("dora_few_kv_heads", {one_kv_head_for_two, "adapter.dropout=0.2"}),
      with("dora_outputs", {"adapter.target_modules=[\"o_proj\",\"down_proj\"]", "model.attention_bias=true"}),
      with("dora_gpt2", {}, true),
      {"some", {"train.only=[\".*(q_proj|up_proj).*\",\".*norm.weight\"]"}},
      {"upper_layers_whole", {"train.freeze=[\"model.embed_tokens.*\",\"model.layers.[0-4][.].*\"]"}},
      {"head", {"train.only=\"lm_head.*\""}},
      {"everything", {"train.only=\".*\""}},
  };
  for (const TunedModel& model : all)
    if (model.name == name) return model;
  throw InternalError("no such model");
}

struct TunedCase {
  ParityCase layout;
  const char* tuned;
  bool packed = false;

  std::string name() const { return layout.name() + "_" + tuned + (packed ? "_packed" : ""); }
  friend void PrintTo(const TunedCase& c, std::ostream* out) { *out << c.name(); }
};

constexpr bool kPacked = true;

// `ctest` runs those above the gap; `ctest -C Full` runs all.
std::vector<TunedCase> tuned_cases() {
  return {
      {{2, 2, 2, true, "zero3", "interleaved"}, "dropout", kPacked},
      {{4, 1, 2, true, "zero3"}, "few_kv_heads"},
      {{1, 4, 1, false, "zero1", "1f1b"}, "upper_layers", kPacked},
      {{1, 2, 2, false, "zero2", "gpipe"}, "lowest_layer"},
      {{8, 1, 1, true}, "query_value"},
      {{2, 1, 2, false, "zero2"}, "phi3"},
      {{4, 1, 1, false}, "keys"},
      {{2, 1, 4, false, "shard_grad_op"}, "tied"},
      {{1, 4, 1, false, "zero1", "interleaved"}, "some", kPacked},
      {{2, 2, 1, true, "zero1", "gpipe"}, "gpt2"},
      {{1, 2, 2, false, "zero1", "interleaved"}, "upper_layers"},
      {{1, 1, 2, false, "ddp"}, "lora", kPacked},
      {{2, 2, 2, false, "zero1", "1f1b"}, "outputs"},
      {{1, 2, 2, false, "zero3", "1f1b"}, "upper_layers_whole"},
      {{2, 2, 2, true, "zero3", "1f1b"}, "saved", kPacked},
      {{2, 2, 1, false, "zero1", "interleaved"}, "saved_head"},
      {{2, 2, 2, true, "zero3", "interleaved"}, "dora"},
      {{4, 1, 2, true, "zero2"}, "dora_few_kv_heads", kPacked},
      {{4, 1, 1, false}, "dora_gpt2"},
      {{2, 2, 2, true, "zero3", "1f1b"}, "some"},
      {{8, 1, 1, true}, "some"},
      {{1, 1, 2, false, "zero2"}, "some"},
      {{1, 2, 1, false, "zero1", "gpipe"}, "upper_layers_whole"},
      {{2, 1, 1, false}, "upper_layers_whole"},
      {{1, 2, 1, false, "zero1", "interleaved"}, "head"},
      {{1, 2, 2, false, "shard_grad_op", "1f1b"}, "some"},

      {{2, 1, 1, false}, "dora"},
      {{8, 1, 1, true}, "dora"},
      {{1, 2, 1, false, "zero1", "1f1b"}, "dora_dropout", kPacked},
      {{1, 1, 2, false, "shard_grad_op"}, "dora"},
      {{2, 2, 2, false, "ddp", "gpipe"}, "dora_dropout"},
      {{2, 1, 2, true, "zero3"}, "dora_outputs"},
      {{2, 2, 1, true, "zero1", "1f1b"}, "dora_gpt2", kPacked},
      {{2, 1, 1, false}, "lora"},
      {{2, 1, 1, true}, "dropout"},
      {{4, 1, 1, true}, "few_kv_heads", kPacked},
      {{8, 1, 1, false}, "dropout"},
      {{4, 1, 1, true}, "gpt2"},
      {{2, 1, 1, true}, "qwen2"},
      {{4, 1, 1, false}, "some"},
      {{1, 2, 1, false, "zero1", "gpipe"}, "lora", kPacked},
      {{1, 2, 1, false, "zero1", "1f1b"}, "upper_layers"},
      {{1, 2, 1, false, "zero1", "interleaved"}, "tied"},
      {{1, 4, 1, false, "zero1", "gpipe"}, "lowest_layer"},
      {{1, 4, 1, false, "zero1", "interleaved"}, "dropout"},
      {{1, 4, 1, false, "zero1", "1f1b"}, "gpt2"},
      {{1, 2, 1, false, "zero1", "1f1b"}, "some", kPacked},
      {{1, 1, 2, false, "zero1"}, "dropout", kPacked},
      {{1, 1, 2, false, "zero2"}, "query_value"},
      {{1, 1, 2, false, "zero3"}, "lora", kPacked},
      {{1, 1, 4, false, "zero3"}, "phi3"},
      {{2, 2, 1, true, "zero1", "1f1b"}, "lora", kPacked},
      {{2, 2, 1, false, "zero1", "interleaved"}, "keys"},
      {{4, 2, 1, true, "zero1", "1f1b"}, "few_kv_heads"},
      {{2, 4, 1, false, "zero1", "interleaved"}, "everything", kPacked},
      {{2, 1, 2, true, "zero3"}, "outputs", kPacked},
      {{1, 4, 2, false, "shard_grad_op", "1f1b"}, "upper_layers_whole"},
      {{1, 2, 4, false, "ddp", "interleaved"}, "everything"},
      {{2, 2, 2, true, "zero2", "1f1b"}, "qwen2"},
      {{4, 1, 1, false}, "saved"},
      {{1, 4, 1, false, "zero1", "gpipe"}, "saved"},
      {{1, 1, 2, false, "zero2"}, "saved_head"},
  };
}
constexpr std::size_t kInEveryRun = 26;

// B is not zero, as it is at first, so that A has a gradient.
float begun_b(const std::string& tensor, std::int64_t index) {
  return 0.1f * (uniform_at(random_key(3, RandomPurpose::kTest, tensor), static_cast<std::uint64_t>(index)) - 0.5f);
}

constexpr int kFewTunedSteps = 4, kFullTunedSteps = 20;

class TunedRuns : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    runs_ = std::make_unique<std::map<std::string, LayoutRun>>();
    write_packs(*folder_ / "alone", *folder_ / "packs");
  }
  static void TearDownTestSuite() {
    runs_.reset();
    folder_.reset();
  }

  static const LayoutRun& run(const TunedCase& c, const Settings& more = {}) {
    const TunedModel model = tuned(c.tuned);
    Settings settings = c.layout.settings();
    settings.emplace_back(model.gpt2 ? "model.n_layer=8" : "model.num_hidden_layers=8");
    settings = plus(plus(settings, model.settings), more);
    const std::string_view suite = ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
    LayoutRunOptions options;
    options.steps = suite.starts_with("Full") ? kFullTunedSteps : kFewTunedSteps;
    options.evaluate = true;
    if (c.packed) {
      options.load = samples_of_packs(*folder_ / "packs");
      settings.emplace_back("data.samples=packed");
    }
    options.before_steps = [](RankTrainer& trainer) {
      set_masters(trainer, [](const std::string& tensor, std::int64_t index) {
        return tensor.ends_with(kLoraB) ? std::optional(begun_b(tensor, index)) : std::nullopt;
      });
    };
    std::string key = model.gpt2 ? "gpt2" : "llama";
    for (const std::string& setting : settings) key += '\n' + setting;
    const auto found = runs_->find(key);
    if (found != runs_->end()) return found->second;
    return runs_->emplace(key, run_layout(model.gpt2 ? tiny_gpt2_config() : tiny_llama_config(), settings, options)).first->second;
  }
  static TunedCase without_pipeline(TunedCase c) {
    c.layout = c.layout.without_pipeline();
    return c;
  }

 private:
  static std::unique_ptr<TemporaryFolder> folder_;
  static std::unique_ptr<std::map<std::string, LayoutRun>> runs_;
};
std::unique_ptr<TemporaryFolder> TunedRuns::folder_;
std::unique_ptr<std::map<std::string, LayoutRun>> TunedRuns::runs_;

double length(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b.at(i)) * (double{a[i]} - b.at(i));
  return std::sqrt(sum);
}

void expect_trained_alike(const LayoutRun& run, const LayoutRun& one) {
  EXPECT_EQ("", compare_losses(run, one));
  EXPECT_EQ("", compare_gradients(run.gradients, one.gradients));
  EXPECT_NEAR(run.eval_loss, one.eval_loss, 1e-6 * one.eval_loss);
  EXPECT_EQ(run.initial, one.initial);
  EXPECT_EQ(run.planned_bytes, run.high_water) << "arena: planned and granted bytes by rank";
  EXPECT_EQ(run.frozen, run.frozen_before);
  EXPECT_EQ(run.frozen, one.frozen);
  ASSERT_FALSE(one.weights.empty());
  for (const auto& [name, expected] : one.weights) {
    const double moved = length(expected, one.initial.at(name));
    EXPECT_GT(moved, 0) << name;
    EXPECT_LE(length(run.weights.at(name), expected), 1e-3 * moved) << name << " after the steps";
  }
}

void expect_equal_bits(const LayoutRun& a, const LayoutRun& b) {
  EXPECT_EQ("", compare_bits(a, b));
  EXPECT_EQ(a.eval_loss, b.eval_loss);
  EXPECT_EQ(a.frozen, b.frozen);
}

class Tuned : public TunedRuns, public ::testing::WithParamInterface<TunedCase> {};

TEST_P(Tuned, EqualsOneRank) {
  TunedCase one = GetParam();
  one.layout = {};
  const LayoutRun& many = run(GetParam());
  expect_trained_alike(many, run(one));
  expect_equal_bits(many, run(without_pipeline(GetParam())));
  for (const char* policy : {"full", "selective"}) {
    SCOPED_TRACE(policy);
    const LayoutRun& recomputed = run(GetParam(), {fmt::format("recompute.policy={}", policy)});
    expect_equal_bits(recomputed, many);
    EXPECT_EQ(recomputed.planned_bytes, recomputed.high_water);
  }
}

std::vector<TunedCase> in_every_run() {
  std::vector<TunedCase> cases = tuned_cases();
  cases.resize(kInEveryRun);
  return cases;
}
std::string name_of(const ::testing::TestParamInfo<TunedCase>& info) { return info.param.name(); }
INSTANTIATE_TEST_SUITE_P(Layouts, Tuned, ::testing::ValuesIn(in_every_run()), name_of);
INSTANTIATE_TEST_SUITE_P(FullLayouts, Tuned, ::testing::ValuesIn(tuned_cases()), name_of);

TEST(TunedMatrix, Has62LayoutsAnd12OfThemWithPackedSamples) {
  const std::vector<TunedCase> cases = tuned_cases();
  EXPECT_EQ(cases.size(), 62u);
  EXPECT_GE(std::ranges::count(cases, true, &TunedCase::packed), 12);
}

TEST_F(TunedRuns, OnlyOfEverythingIsFullTrainingToTheBit) {
  for (const ParityCase& layout : {ParityCase{2, 2, 2, true, "zero3", "interleaved"}, {1, 4, 2, false, "zero2", "gpipe"},
                                   {4, 1, 2, false, "ddp"}, {8, 1, 1, true}})
    for (const char* precision : {"fp32", "bf16"}) {
      SCOPED_TRACE(layout.name() + precision);
      const std::string compute = fmt::format("precision.compute={}", precision);
      const LayoutRun &only = run({layout, "everything"}, {compute}), &full = run({layout, "everything"}, {compute, "train={}"});
      EXPECT_EQ("", compare_bits(only, full));
      EXPECT_EQ(only.planned_bytes, full.planned_bytes);
    }
}

TEST_F(TunedRuns, SixteenBitsDoNotDependOnPipelineZeroOrRecomputation) {
  const TunedCase some{{1, 2, 2, false, "zero3", "1f1b"}, "upper_layers_whole"},
      dropout{{2, 2, 2, true, "zero3", "interleaved"}, "dropout"}, tied{{2, 2, 2, false, "zero1", "gpipe"}, "tied"},
      packed{{1, 4, 2, false, "zero2", "1f1b"}, "query_value", kPacked};
  const Settings bf16{"precision.compute=bf16"}, rounded{"precision.compute=bf16", "precision.stochastic_rounding=true"},
      fp16{"precision.compute=fp16", "precision.loss_scale=1024"};
  for (const auto& [c, precision] : std::vector<std::pair<TunedCase, Settings>>{{some, bf16}, {dropout, bf16}, {tied, rounded},
                                                                               {packed, bf16}, {dropout, fp16}, {some, fp16}}) {
    SCOPED_TRACE(c.name() + precision.front());
    const LayoutRun& many = run(c, precision);
    expect_equal_bits(many, run(without_pipeline(c), precision));
    EXPECT_EQ(many.frozen, many.frozen_before);
    EXPECT_EQ(many.planned_bytes, many.high_water);
    Settings recomputed = precision;
    recomputed.emplace_back("recompute.policy=full");
    expect_equal_bits(many, run(c, recomputed));
  }
}

TEST_F(TunedRuns, EqualGradSyncGivesEqualBits) {
  for (const char* sync : {"\"step\"", "{\"every\":1}", "{\"every\":3}"}) {
    const std::string grad_sync = fmt::format("parallel.grad_sync={}", sync);
    const LayoutRun& ddp = run({{1, 2, 2, false, "ddp", "1f1b"}, "upper_layers"}, {grad_sync});
    for (const char* zero : {"zero1", "zero2", "shard_grad_op", "zero3"})
      for (const char* gather : {"per_use", "per_micro_batch", "resident"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", sync, zero, gather));
        expect_equal_bits(run({{1, 2, 2, false, zero, "1f1b"}, "upper_layers"},
                              {grad_sync, fmt::format("parallel.param_gather={}", gather)}),
                          ddp);
      }
  }
}

// DoRA's lengths of rows are summed over tp once for each row-parallel module and step of weights, and nowhere else.
TEST_F(TunedRuns, RowLengthsAreSummedOncePerStep) {
  const auto tensor = static_cast<std::size_t>(Axis::kTensor);
  const Settings outputs{"adapter.target_modules=[\"o_proj\",\"down_proj\"]"};
  for (const char* more : {"batch.micro=1", "batch.micro=2", "recompute.policy=full", "recompute.policy=selective"}) {
    SCOPED_TRACE(more);
    Settings settings = outputs;
    settings.emplace_back(more);
    const TunedCase dora{{2, 1, 1, false}, "dora"}, lora{{2, 1, 1, false}, "lora"};
    // Lengths and, as every rank's gradient is a summand, those of magnitudes: of two modules of eight layers 64 values by two
    // ranks, each half sent and half received.
    EXPECT_EQ(run(dora, settings).bytes_sent[tensor] - run(lora, settings).bytes_sent[tensor], 2 * 2 * 8 * 64 * 4 * 2);
  }
}

// An evaluation sums them, too, and the step that follows sums them anew, because the bytes of a step are predicted.
TEST_F(TunedRuns, AStepAfterAnEvaluationSendsWhatOthersSend) {
  const auto sent = [](bool evaluates) {
    LayoutRunOptions options;
    options.steps = 1;
    options.before_steps = [&](RankTrainer& trainer) {
      if (evaluates) trainer.evaluate(random_tokens(97, 16), 1, {});
    };
    const Settings settings{"model.num_hidden_layers=2", "parallel.tensor=2", "adapter.type=dora", "adapter.r=4"};
    return run_layout(tiny_llama_config(), settings, options).bytes_sent;
  };
  EXPECT_EQ(sent(true), sent(false));
}

// The last three of eight layers in four stages have adapters: backwards end with the stage that has layer 5, and so do gradients
// between stages.
TEST_F(TunedRuns, StagesBelowTheLowestAdapterRunNoBackward) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
    SCOPED_TRACE(schedule);
    const bool interleaved = std::string_view(schedule) == "interleaved";
    const ParityCase layout{1, 4, 1, false, "zero1", schedule};
    const std::string layers = interleaved ? "parallel.layers=[1,1,1,1,1,1,1,1]" : "parallel.layers=[2,2,2,2]";
    const LayoutRun &upper = run({layout, "upper_layers"}, {layers}), &all = run({layout, "lora"}, {layers});
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const StepProgram& program = upper.plan.step_programs[rank];
      const bool trains = interleaved ? rank > 0 : rank > 1;
      EXPECT_EQ(program.has(InstructionKind::kBackward), trains) << rank;
      EXPECT_EQ(program.has(InstructionKind::kSendGradient), interleaved ? rank > 1 : rank > 2) << rank;
      EXPECT_EQ(program.has(InstructionKind::kRecvGradient), trains && rank < 3) << rank;
    }
    const auto pipeline = static_cast<std::size_t>(Axis::kPipeline);
    constexpr double kMicroBatches = 8, kMessage = 16 * 64 * 4;
    EXPECT_EQ(all.bytes_sent[pipeline] - upper.bytes_sent[pipeline], (interleaved ? 5 : 2) * kMicroBatches * kMessage);
    EXPECT_LT(upper.planned_bytes[0], all.planned_bytes[0]);
  }
}

}  // namespace
}  // namespace trident::testing
