// Tests what a step owes its user whatever the layout: the rate, the norm, clipping, decay, the update itself, evaluation.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "support/layout_run.h"
#include "support/parity_cases.h"
#include "tests/support/error_text.h"

namespace trident::testing {
namespace {

using Settings = std::vector<std::string>;

Settings with(const ParityCase& layout, Settings more) {
  const Settings settings = layout.settings();
  more.insert(more.begin(), settings.begin(), settings.end());
  return more;
}

LayoutRun run(const std::string& config, const Settings& settings, int steps, bool evaluate = false) {
  LayoutRunOptions options;
  options.steps = steps;
  options.evaluate = evaluate;
  return run_layout(config, settings, options);
}

double norm_of(const NamedTensors& tensors) {
  double sum = 0;
  for (const auto& [name, values] : tensors) {
    for (const float x : values) sum += static_cast<double>(x) * x;
  }
  return std::sqrt(sum);
}

bool is_vector(const std::string& name) {
  return name.ends_with(".bias") || name.find("ln_") != std::string::npos || name.find("norm") != std::string::npos;
}

// ---- rate and norm
// ---------------------------------------------------------------------------------------------------------------------

TEST(TrainingRules, WarmUpReachesItsRateAtItsLastStep) {
  LayoutRunOptions options;
  options.steps = 0;
  std::vector<StepResult> results;
  options.after_steps = [&](RankTrainer& trainer) {
    for (int step = 0; step < 6; ++step) {
      const StepResult result = trainer.step(random_tokens(97, 16));
      if (trainer.context().rank() == 0) results.push_back(result);
    }
  };
  run_layout(tiny_llama_config(), with({1, 1, 2}, {"model.num_hidden_layers=1"}), options);
  const std::vector<double> expected{0.75e-4, 1.5e-4, 2.25e-4, 3e-4, 3e-4, 3e-4};  // lr 3e-4, 4 steps of warm-up
  ASSERT_EQ(results.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(results[i].lr, expected[i], 1e-12) << "step " << i + 1;
    EXPECT_EQ(results[i].updates, static_cast<std::int64_t>(i) + 1);
  }
}

// The first update of AdamW moves every element that has a gradient by the rate: what is reported is what is done.
TEST(TrainingRules, TheReportedRateIsTheOneApplied) {
  const LayoutRun one =
      run(tiny_llama_config(), {"model.num_hidden_layers=1", "optimizer.weight_decay=0", "optimizer.eps=1e-12"}, 1);
  const std::vector<float>&before = one.initial.at("lm_head.weight"), &after = one.weights.at("lm_head.weight");
  for (std::size_t i = 0; i < before.size(); i += 101) EXPECT_NEAR(std::abs(after[i] - before[i]), 0.75e-4, 1e-7) << i;
}

TEST(TrainingRules, NormIsThatOfEveryTensorOnce) {
  for (const std::string& config : {tiny_gpt2_config(), tiny_llama_config()}) {
    const std::string layers = config == tiny_gpt2_config() ? "model.n_layer=2" : "model.num_hidden_layers=2";
    for (const ParityCase& layout : {ParityCase{}, ParityCase{1, 2, 1}, ParityCase{2, 1, 1, true}, ParityCase{8, 1, 1, false},
                                     ParityCase{2, 2, 2, true, "zero2"}, ParityCase{1, 1, 2, false, "ddp"}}) {
      const LayoutRun result = run(config, with(layout, {layers}), 1);
      const double expected = norm_of(result.gradients);
      EXPECT_NEAR(result.grad_norms[0], expected, 1e-6 * expected) << layers << ' ' << layout.name();
    }
  }
}

// ---- the update
// ----------------------------------------------------------------------------------------------------------------------

// With eps and the rate large and equal, AdamW's first update is the gradient itself: its length is what clipping leaves.
TEST(TrainingRules, ClippingLeavesTheNormAskedFor) {
  const auto moved = [](const ParityCase& layout, const char* clip) {
    const LayoutRun r =
        run(tiny_llama_config(),
            with(layout, {"model.num_hidden_layers=2", "optimizer.weight_decay=0", "optimizer.eps=1e4", "optimizer.lr=1e4",
                          "lr_schedule.warmup_steps=0", std::string("optimizer.grad_clip=") + clip}),
            1);
    NamedTensors difference = r.weights;
    for (auto& [name, values] : difference) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] -= r.initial.at(name)[i];
    }
    return std::pair{norm_of(difference), r.grad_norms[0]};
  };
  for (const ParityCase& layout : {ParityCase{}, ParityCase{1, 1, 4, false, "zero1"}, ParityCase{2, 2, 2, true, "zero3"}}) {
    SCOPED_TRACE(layout.name());
    const auto [whole, norm] = moved(layout, "0");  // off
    EXPECT_NEAR(whole, norm, 1e-3 * norm);
    const auto [clipped, same_norm] = moved(layout, "0.125");
    EXPECT_NEAR(clipped, 0.125, 1e-3 * 0.125);
    EXPECT_EQ(same_norm, norm) << "reported before clipping";
    EXPECT_NEAR(moved(layout, "1000").first, norm, 1e-3 * norm) << "below the limit nothing is clipped";
  }
}

TEST(TrainingRules, ClippingIsTheSameInEveryLayout) {
  const Settings clip{"model.num_hidden_layers=2", "optimizer.grad_clip=0.01", "optimizer.eps=1e-3"};
  const LayoutRun one = run(tiny_llama_config(), with({}, clip), 4);
  for (const ParityCase& layout :
       {ParityCase{2, 1, 1, true}, ParityCase{1, 2, 1}, ParityCase{1, 1, 2, false, "zero1"}, ParityCase{2, 2, 2, true, "zero3"}}) {
    const LayoutRun r = run(tiny_llama_config(), with(layout, clip), 4);
    EXPECT_EQ("", compare_losses(r, one)) << layout.name();
    for (const auto& [name, weights] : one.weights) {
      for (std::size_t i = 0; i < weights.size(); i += 97)
        ASSERT_NEAR(r.weights.at(name)[i], weights[i], 1e-6) << layout.name() << ' ' << name;
    }
  }
}

// A decayed weight shrinks by lr * decay of itself on top of the gradient's step (Loshchilov and Hutter 2019); vectors never do.
TEST(TrainingRules, VectorsDoNotDecay) {
  constexpr double kRate = 1e-2, kDecay = 0.5;
  for (const std::string& config : {tiny_gpt2_config(), tiny_llama_config()}) {
    const Settings common{config == tiny_gpt2_config() ? "model.n_layer=2" : "model.num_hidden_layers=2",
                          "lr_schedule.warmup_steps=0", "optimizer.lr=1e-2"};
    for (const ParityCase& layout : {ParityCase{}, ParityCase{2, 1, 2, true, "zero1"}}) {
      Settings none = with(layout, common), some = none;
      none.push_back("optimizer.weight_decay=0");
      some.push_back("optimizer.weight_decay=0.5");
      const LayoutRun plain = run(config, none, 1), decayed = run(config, some, 1);
      for (const auto& [name, initial] : plain.initial) {
        const std::vector<float>&a = plain.weights.at(name), &b = decayed.weights.at(name);
        if (is_vector(name)) {
          EXPECT_EQ(a, b) << name;
          continue;
        }
        for (std::size_t i = 0; i < a.size(); i += 31)
          ASSERT_NEAR(b[i] - a[i], -kRate * kDecay * initial[i], 1e-7) << name << ' ' << i;
      }
    }
  }
}

// An update rule in double beside the run (float weights near 1 round by 6e-8 a step), from the gradients that the optimizer sees.
struct Element {
  double weight, first, second;
};
using Rule = std::function<void(Element&, double gradient, int step)>;
void expect_updates_are(const Settings& settings, const Rule& rule) {
  std::vector<std::vector<Element>> replay;
  LayoutRunOptions options;
  options.steps = 3;
  options.before_steps = [&](RankTrainer& trainer) {
    for (const ParamShard& shard : trainer.store().shards()) {
      std::vector<Element>& elements = replay.emplace_back();
      for (std::int64_t i = 0; i < shard.elements; ++i) elements.push_back({shard.master.as<float>()[i], 0, 0});
    }
  };
  options.on_gradients = [&](const ParamStore& store, ParallelContext&, int step) {
    for (std::size_t s = 0; s < replay.size(); ++s) {
      const float* gradient = store.shards()[s].grad.as<float>();
      for (std::size_t i = 0; i < replay[s].size(); ++i) rule(replay[s][i], gradient[i], step);
    }
  };
  options.after_steps = [&](RankTrainer& trainer) {
    for (std::size_t s = 0; s < replay.size(); ++s) {
      const float* master = trainer.store().shards()[s].master.as<float>();
      for (std::size_t i = 0; i < replay[s].size(); ++i) ASSERT_NEAR(master[i], replay[s][i].weight, 4e-7) << s << ' ' << i;
    }
  };
  run_layout(tiny_llama_config(), plus({"model.num_hidden_layers=1", "optimizer.betas=[0.5,0.75]", "optimizer.lr=1e-2",
                                        "optimizer.weight_decay=0", "optimizer.grad_clip=0", "lr_schedule.warmup_steps=0"},
                                       settings),
             options);
  EXPECT_FALSE(replay.empty());
}
constexpr double kBeta1 = 0.5, kBeta2 = 0.75, kRuleRate = 1e-2;

// Betas, eps and bias correction as configured.
TEST(TrainingRules, BetasAndEpsAreTheConfigured) {
  constexpr double kEps = 1e-2;
  expect_updates_are({"optimizer.eps=1e-2"}, [](Element& e, double g, int step) {
    e.first = kBeta1 * e.first + (1 - kBeta1) * g;
    e.second = kBeta2 * e.second + (1 - kBeta2) * g * g;
    const double first = e.first / (1 - std::pow(kBeta1, step + 1)), second = e.second / (1 - std::pow(kBeta2, step + 1));
    e.weight -= kRuleRate * first / (std::sqrt(second) + kEps);
  });
}

TEST(TrainingRules, LionMovesByTheSignOfItsFirstMix) {
  expect_updates_are({"optimizer.type=lion"}, [](Element& e, double g, int) {
    const double mixed = kBeta1 * e.first + (1 - kBeta1) * g;
    e.weight -= kRuleRate * (mixed > 0 ? 1 : mixed < 0 ? -1 : 0);
    e.first = kBeta2 * e.first + (1 - kBeta2) * g;
  });
}

// ---- what must not happen
// ---------------------------------------------------------------------------------------------------------------

TEST(TrainingRules, ANonFiniteGradientStopsEveryRank) {
  for (const ParityCase& layout :
       {ParityCase{1, 1, 2, false, "zero1"}, ParityCase{2, 1, 2, true, "zero3"}, ParityCase{1, 2, 2, false, "ddp"}}) {
    SCOPED_TRACE(layout.name());
    const Settings settings = with(layout, {"model.num_hidden_layers=2"});
    LayoutRunOptions options;
    options.steps = 2;
    options.on_gradients = [](const ParamStore& store, ParallelContext& context, int step) {
      if (step != 1 || context.rank() != 0) return;
      const auto counted =
          std::find_if(store.shards().begin(), store.shards().end(), [](const ParamShard& s) { return s.counts_in_norm; });
      ASSERT_TRUE(counted != store.shards().end() && counted->pieces.front().norm_owner);
      counted->grad.as<float>()[counted->pieces.front().shard_begin] = std::numeric_limits<float>::infinity();
    };
    const LayoutRun stopped = run_layout(tiny_llama_config(), settings, options), before = run(tiny_llama_config(), settings, 1);
    EXPECT_EQ(stopped.applied, (std::vector<bool>{true, false}));
    for (const auto& [name, weights] : before.weights) EXPECT_EQ(weights, stopped.weights.at(name)) << name << " moved";
  }
}

// 1,024 tokens a micro-batch: row kernels, updates and products are worth several threads then.
TEST(TrainingRules, StepsHaveTheSameBitsWithAnyNumberOfThreads) {
  for (const bool gpt2 : {false, true}) {
    for (const char* compute : {"fp32", "bf16"}) {
      const auto steps = [&](int threads) {
        return run(gpt2 ? tiny_gpt2_config() : tiny_llama_config(),
                   {fmt::format("precision.compute={}", compute), fmt::format("run.threads_per_rank={}", threads),
                    gpt2 ? "model.n_layer=2" : "model.num_hidden_layers=2", "batch.micro=4", "batch.sequence=256",
                    gpt2 ? "model.n_positions=256" : "model.max_position_embeddings=256"},
                   2);
      };
      const LayoutRun reference = steps(1);
      for (const int threads : {2, 3}) EXPECT_EQ(compare_bits(steps(threads), reference), "") << threads << " threads, " << compute;
    }
  }
}

TEST(TrainingRules, EvaluationDropsNothing) {
  const std::string config = tiny_gpt2_config();
  const LayoutRun whole = run(config, {"model.n_layer=4"}, 0, true);
  EXPECT_NEAR(whole.eval_loss, std::log(97.0), 0.1) << "a fresh model knows nothing";
  for (const ParityCase& layout : {ParityCase{}, ParityCase{2, 1, 1, true}, ParityCase{1, 2, 1, false, "zero1", "interleaved"},
                                   ParityCase{2, 2, 2, true, "zero3"}}) {
    const LayoutRun r = run(config, with(layout, {"model.n_layer=4", "model.dropout=0.1"}), 0, true);
    EXPECT_NEAR(r.eval_loss, whole.eval_loss, 1e-6 * whole.eval_loss) << layout.name();
  }
}

// Evaluation sees the weights after the last update, gathered, and changes nothing of what follows.
TEST(TrainingRules, EvaluationLeavesTrainingAlone) {
  for (const ParityCase& layout : {ParityCase{1, 1, 2, false, "zero1"}, ParityCase{1, 2, 2, false, "zero3"}}) {
    const Settings settings = with(layout, {"model.num_hidden_layers=4", "model.dropout=0.1"});
    std::vector<double> losses;
    LayoutRunOptions options;
    options.steps = 2;
    options.after_steps = [&](RankTrainer& trainer) {
      trainer.evaluate(random_tokens(97, 16), 1, {});
      const StepResult third = trainer.step(random_tokens(97, 16));
      if (trainer.context().rank() == 0) losses.push_back(third.loss);
    };
    run_layout(tiny_llama_config(), settings, options);
    EXPECT_EQ(losses, (std::vector<double>{run(tiny_llama_config(), settings, 3).losses.at(2)})) << layout.name();
  }
}

}  // namespace
}  // namespace trident::testing
