// Training with bf16 weights rounded at random: every rank of every layout holds the same bits for the same element, and they
// are those of the formula in device/ops.h, from f32 masters.
#include "tests/support/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "tests/support/error_text.h"
#include "tests/support/layout_run.h"
#include "tests/support/param_elements.h"
#include "train/plan/machine.h"

namespace trident::testing {
namespace {

constexpr int kUpdates = 3;

std::vector<std::string> rounded(std::vector<std::string> settings, const std::string& rounding = "true") {
  settings.insert(settings.end(), {"precision.compute=bf16", "precision.stochastic_rounding=" + rounding, "debug.no_alloc=true"});
  return settings;
}
std::string llama() { return tiny_llama_config(); }
std::string gpt2() { return tiny_gpt2_config(); }
std::vector<std::string> small(const std::string& config, std::vector<std::string> layout) {
  layout.insert(layout.begin(), config == gpt2() ? "model.n_layer=2" : "model.num_hidden_layers=2");
  return layout;
}

// Elements of shards whose weight is that of the formula for their master in update `update`, or is not.
struct Weights {
  std::atomic<std::int64_t> right{0}, wrong{0}, not_nearest{0};

  void look_at(RankTrainer& trainer, std::uint64_t update, std::uint64_t seed) {
    ParallelContext& context = trainer.context();
    context.compute_stream().synchronize();
    for (const ParamShard& shard : trainer.store().shards()) {
      if (!shard.updated) continue;
      for (const ShardPiece& piece : shard.pieces) {
        const ElementMap map(*piece.spec, context.grid().degrees().tensor, context.coordinates().tensor);
        for (std::int64_t i = 0; i < piece.count; ++i) {
          const float master = shard.master.as<float>()[piece.shard_begin + i];
          bf16 weight{};
          std::memcpy(&weight, shard.param.data() + 2 * (piece.shard_begin + i), sizeof weight);
          const auto element = map(piece.param_begin + i);
          if (!element) {
            EXPECT_EQ(weight.bits, 0) << "padding";
            continue;
          }
          const PhiloxKey key = random_key(seed, RandomPurpose::kRounding, element->part->tensor);
          const auto index = static_cast<std::uint64_t>(element->index);
          const bf16 expected = rounded_at_random(master, rounding_bits({.key = {key[0], key[1]}}, update, index));
          ++(weight.bits == expected.bits ? right : wrong);
          if (weight.bits != to_bf16(master).bits) ++not_nearest;
        }
      }
    }
  }
};

LayoutRun run(const std::string& config, const std::vector<std::string>& settings, Weights& weights,
              const std::string& rounding = "true") {
  LayoutRunOptions options;
  options.steps = kUpdates;
  options.after_steps = [&](RankTrainer& trainer) { weights.look_at(trainer, kUpdates, 1234); };
  std::vector<std::string> all = rounded(small(config, settings), rounding);
  all.emplace_back("run.seed=1234");
  return run_layout(config, all, options);
}

struct Layout {
  const char* name;
  std::vector<std::string> settings;
};
void PrintTo(const Layout& layout, std::ostream* to) { *to << layout.name; }
const std::vector<Layout> kLayouts = {
    {"one_rank", {}},
    {"t2", {"parallel.tensor=2"}},
    {"t2_sequence_parallel", {"parallel.tensor=2", "parallel.sequence_parallel=true"}},
    {"t8_replicated_keys", {"parallel.tensor=8"}},
    {"p2", {"parallel.pipeline=2"}},
    {"d2_ddp", {"parallel.data=2", "parallel.zero=ddp"}},
    {"d2_zero1", {"parallel.data=2", "parallel.zero=zero1"}},
    {"d2_zero3", {"parallel.data=2", "parallel.zero=zero3"}},
    {"t2_p2_d2_zero1", {"parallel=\"2DP x 2PP x 2TP\"", "parallel.zero=zero1"}},
    {"t2_p2_d2_zero3", {"parallel=\"2DP x 2PP x 2TP\"", "parallel.zero=zero3", "parallel.sequence_parallel=true"}},
};

class StochasticRoundingLayouts : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(All, StochasticRoundingLayouts, ::testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

// So equal masters have equal weights, whoever holds them: both ends of a tied weight,
// copies of data-parallel ranks, replicas of keys.
TEST_P(StochasticRoundingLayouts, HaveTheBitsOfTheFormulaEverywhere) {
  for (const std::string& config : {llama(), gpt2()}) {
    Weights weights;
    run(config, GetParam().settings, weights);
    EXPECT_EQ(weights.wrong, 0);
    EXPECT_GT(weights.right, 50'000);
    EXPECT_GT(weights.not_nearest, weights.right / 8) << "a quarter, where all is at random";
  }
}

// Bits of losses, norms, gradients and masters, which all come of the weights: what
// docs/numerics.md promises of rounding to nearest.
TEST(StochasticRounding, BitsDoNotDependOnPipelineOrZero) {
  Weights weights;
  const auto bits = [&](const std::string& config, const std::vector<std::string>& settings) {
    return run(config, settings, weights);
  };
  for (const std::string& config : {llama(), gpt2()}) {
    const LayoutRun one = bits(config, {}), ddp = bits(config, {"parallel.data=2", "parallel.zero=ddp"});
    EXPECT_EQ("", compare_bits(bits(config, {"parallel.pipeline=2"}), one));
    EXPECT_EQ("", compare_bits(bits(config, {"parallel.data=2", "parallel.zero=zero1"}), ddp));
    EXPECT_EQ("", compare_bits(bits(config, {"parallel.data=2", "parallel.zero=zero3", "parallel.grad_sync=step"}), ddp));
    EXPECT_EQ("", compare_bits(bits(config, {"parallel.data=2", "parallel.pipeline=2", "parallel.zero=zero1"}), ddp));
    if (config == gpt2()) continue;
    EXPECT_EQ("", compare_bits(bits(config, {"run.threads_per_rank=2"}), one));
    EXPECT_EQ("", compare_bits(bits(config, {"recompute.policy=full"}), one));
    EXPECT_EQ("", compare_bits(bits(config, {}), one)) << "again";
  }
}

TEST(StochasticRounding, IsOffUnlessAskedFor) {
  Weights off, on;
  const LayoutRun nearest = run(llama(), {}, off, "false"), random = run(llama(), {}, on);
  EXPECT_EQ(off.not_nearest, 0);
  EXPECT_GT(on.not_nearest, 0);
  // The first step has the initial weights, to nearest; the next one does not.
  EXPECT_EQ(nearest.losses[0], random.losses[0]);
  EXPECT_EQ(nearest.grad_norms[0], random.grad_norms[0]);
  EXPECT_NE(nearest.losses[1], random.losses[1]);
  LayoutRunOptions options;
  options.steps = kUpdates;
  EXPECT_EQ("", compare_bits(run_layout(llama(), small(llama(), {"precision.compute=bf16", "run.seed=1234"}), options), nearest));
}

TEST(StochasticRounding, AnotherSeedRoundsOtherwise) {
  const auto losses = [](const char* seed) {
    LayoutRunOptions options;
    options.steps = 2;
    // The same weights at first.
    options.before_steps = [](RankTrainer& trainer) {
      for (const ParamShard& shard : trainer.store().shards())
        for (std::int64_t i = 0; i < shard.elements; ++i) shard.master.as<float>()[i] = 0.001f * static_cast<float>(i % 37 - 18);
      trainer.store().publish_masters();
    };
    return run_layout(llama(), rounded(small(llama(), {std::string("run.seed=") + seed})), options).losses;
  };
  const std::vector<double> a = losses("1"), b = losses("2");
  EXPECT_EQ(a[0], b[0]);
  EXPECT_NE(a[1], b[1]);
}

TEST(StochasticRounding, NeedsAProcessorThatComputesInBf16) {
  const TrainConfig config = parse_train_config(
      llama(), "test", {"run.steps=5", "data.train=unused", "precision.compute=auto", "precision.stochastic_rounding=true"});
  MachineFacts machine = cpu_machine_facts(1);
  machine.bf16_over_fp32 = 2;
  EXPECT_EQ(make_run_plan(config, resolve_model(config), 0, machine).compute, DType::kBF16);
  machine.bf16_over_fp32 = 0;
  EXPECT_EQ(error_of<ConfigError>([&] { make_run_plan(config, resolve_model(config), 0, machine); }),
            "precision.stochastic_rounding = true: only bf16 weights are rounded at random, and weights are f32 (precision.compute "
            "= auto: the "
            "processor has no bf16 products); set precision.compute to \"bf16\", or precision.stochastic_rounding to false");
}

}  // namespace
}  // namespace trident::testing
