// Tests what a step owes its user whatever the layout: the rate, the norm, clipping, decay, the update itself, evaluation.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "data/document_starts.h"
#include "model/model_constants.h"
#include "support/cpu_ranks.h"
#include "support/layout_run.h"
#include "support/parity_cases.h"

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
  Settings all{"model.num_hidden_layers=1", "optimizer.betas=[0.5,0.75]", "optimizer.lr=1e-2", "optimizer.weight_decay=0",
               "optimizer.grad_clip=0", "lr_schedule.warmup_steps=0"};
  all.insert(all.end(), settings.begin(), settings.end());
  run_layout(tiny_llama_config(), all, options);
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

// ---- targets that do not count

// random_tokens() in which `end` ends documents, as BatchLoader marks them.
LoadSamples with_documents(std::int32_t end) {
  return [=](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    constexpr std::int64_t kT = 16;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(kT * count)), of_sample(kT), begins;
    random_tokens(97, kT)(first, count, {tokens, spans.targets});
    std::ranges::copy(std::span(tokens).first(spans.tokens.size()), spans.tokens.begin());
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t s = 0; s < kT; ++s)
        of_sample[static_cast<std::size_t>(s)] = tokens[static_cast<std::size_t>(s * count + i)] % 8;
      begins.clear();
      find_behind_eod(of_sample, end, begins);  // about every eighth token
      mark_documents(begins, true, kT, i, count, spans);
    }
  };
}

constexpr std::int32_t kNoEnd = 8;

LayoutRun run_counted(const Settings& settings, std::int32_t end, int steps = 3) {
  LayoutRunOptions options;
  options.steps = steps;
  options.evaluate = true;
  options.load = with_documents(end);
  return run_layout(tiny_llama_config(), settings, options);
}

TEST(CountedTargets, DivideTheLossTheSameInEveryLayout) {
  const Settings counts{"model.num_hidden_layers=4", "data.eod_mask_loss=true"};
  const LayoutRun one = run_counted(counts, 3), all = run_counted(counts, kNoEnd);
  EXPECT_NE(one.losses, all.losses);
  EXPECT_NEAR(one.eval_loss, all.eval_loss, 0.1) << "an eighth of the targets does not count";
  for (const ParityCase& layout :
       {ParityCase{1, 1, 2, false, "ddp"}, ParityCase{1, 2, 1}, ParityCase{1, 2, 2, false, "zero1", "interleaved"},
        ParityCase{1, 1, 2, false, "zero2"}, ParityCase{1, 1, 4, false, "zero3"}, ParityCase{2, 2, 2, true, "zero3"}}) {
    const LayoutRun other = run_counted(with(layout, counts), 3);
    EXPECT_EQ("", compare_losses(other, one)) << layout.name();
    EXPECT_EQ("", compare_gradients(other.gradients, one.gradients)) << layout.name();
    EXPECT_NEAR(other.eval_loss, one.eval_loss, 1e-6 * one.eval_loss) << layout.name();
  }
  const LayoutRun chunked =
      run_counted({"model.num_hidden_layers=4", "data.eod_mask_loss=true", "recompute.head_chunk=4", "batch.micro=2"}, 3);
  EXPECT_EQ("", compare_losses(chunked, one));
  EXPECT_EQ("", compare_gradients(chunked.gradients, one.gradients));
}

TEST(CountedTargets, ThatAllCountChangeNoBit) {
  for (const ParityCase& layout : {ParityCase{}, ParityCase{1, 2, 2, false, "zero1"}}) {
    const LayoutRun counted = run_counted(with(layout, {"model.num_hidden_layers=2", "data.eod_mask_loss=true"}), kNoEnd);
    const LayoutRun plain = run_counted(with(layout, {"model.num_hidden_layers=2"}), kNoEnd);
    EXPECT_EQ("", compare_bits(counted, plain)) << layout.name();
    EXPECT_EQ(counted.eval_loss, plain.eval_loss) << layout.name();
    EXPECT_EQ(counted.planned_bytes, plain.planned_bytes) << layout.name();
  }
}

// The second of three batches has no target that counts.
TEST(CountedTargets, OfABatchWithoutAnyNoRankSteps) {
  for (const ParityCase& layout : {ParityCase{}, ParityCase{1, 2, 2, false, "zero2"}}) {
    const RunPlan plan = cpu_plan(tiny_llama_config(), with(layout, {"model.num_hidden_layers=2", "data.eod_mask_loss=true",
                                                                     "precision.compute=fp16", "precision.loss_scale=1024"}));
    std::vector<std::vector<StepResult>> results(static_cast<std::size_t>(plan.world_size()));
    on_cpu_ranks(plan, [&](int rank, RankTrainer& trainer) {
      const LoadSamples some = with_documents(3);
      const LoadSamples load = [&](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
        some(first, count, spans);
        if (first / 8 == 1) std::ranges::fill(spans.targets, -1);
      };
      std::vector<float> before;
      for (int step = 0; step < 3; ++step) {
        const LossScaler::State scaler = trainer.loss_scaler().state();
        before = masters_of(trainer.store());
        results[static_cast<std::size_t>(rank)].push_back(trainer.step(load));
        if (step == 1) {
          EXPECT_EQ(masters_of(trainer.store()), before) << "rank " << rank;
          EXPECT_EQ(trainer.loss_scaler().state().clean_steps, scaler.clean_steps) << "rank " << rank;
        }
      }
    });
    for (const std::vector<StepResult>& of_rank : results) {
      EXPECT_TRUE(of_rank[0].applied);
      EXPECT_FALSE(of_rank[1].applied);
      EXPECT_EQ(of_rank[1].counted, 0);
      EXPECT_EQ(of_rank[1].updates, 1);
      EXPECT_FALSE(of_rank[1].scale_can_shrink);
      EXPECT_TRUE(of_rank[2].applied);
      EXPECT_EQ(of_rank[2].updates, 2);
      EXPECT_EQ(of_rank[0].counted, results[0][0].counted);
      EXPECT_GT(*of_rank[0].counted, 8 * 16 * 3 / 4);
      EXPECT_LT(*of_rank[0].counted, 8 * 16);
    }
  }
}

// ---- what attention sees, and where tokens stand

// The buffers of a stage of one rank, with samples whose documents begin as with_documents(3) has them.
struct LoadedBuffers {
  LoadedBuffers(const RunPlan& plan, int stage = 0)
      : device(doorbell, CpuDeviceOptions{}),
        buffers(plan, device, stage, LossDetail::kOfBatches, arena_plan),
        constants(plan.model, plan.geometry(0), arena_plan, ModelConstants::Lengths::kUpTo) {
    arena.emplace(arena_plan, device.allocate(arena_plan.total_bytes(), "buffers"));
    buffers.bind(*arena);
    const BatchSlicing slicing{plan.config.batch.global, plan.config.batch.micro, 1};
    buffers.load(with_documents(3), 0, slicing, 0);
    buffers.set_positions({}, constants, 0, slicing, 0);
    device.compute_stream().synchronize();
  }
  static std::vector<std::int32_t> values(ConstTensorView view) {
    const auto* const data = view.as<std::int32_t>();
    return {data, data + view.num_elements()};
  }

  Doorbell doorbell;
  CpuDevice device;
  ArenaPlan arena_plan;
  BatchBuffers buffers;
  ModelConstants constants;
  std::optional<Arena> arena;
};

TEST(DocumentBuffers, HaveFirstKeysWindowsAndPositionsOfEveryMicroBatch) {
  constexpr std::int64_t kT = 16, kB = 2, kWindow = 5;
  RunPlan plan = cpu_plan(tiny_llama_config(), {"model.num_hidden_layers=1", "batch.micro=2", "data.reset_attention_mask=true",
                                                "data.reset_position_ids=true"});
  plan.model.sliding_window = kWindow;
  LoadedBuffers loaded(plan);
  for (std::int64_t k = 0; k < plan.num_micro_batches; ++k) {
    std::vector<std::int32_t> starts(kT * kB), windows(starts), by_sample(starts), by_row(starts);
    with_documents(3)(k * kB, kB, {.document_starts = starts});
    for (std::int64_t i = 0; i < kB * kT; ++i) {
      const std::int64_t s = i % kT, start = starts[static_cast<std::size_t>(i)];
      windows[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(std::max(start, s - kWindow + 1));
      by_sample[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(s - start);
      by_row[static_cast<std::size_t>(s * kB + i / kT)] = static_cast<std::int32_t>(s - start);
    }
    const MicroBatch& mb = loaded.buffers.micro_batches()[static_cast<std::size_t>(k)];
    EXPECT_EQ(mb.first_key.shape(), (Shape{kB, kT}));
    EXPECT_EQ(LoadedBuffers::values(mb.first_key), starts);
    EXPECT_EQ(LoadedBuffers::values(mb.first_key_in_window), windows);
    EXPECT_EQ(LoadedBuffers::values(mb.positions_by_sample), by_sample);
    EXPECT_EQ(LoadedBuffers::values(mb.positions_by_row), by_row);
  }
}

TEST(DocumentBuffers, BeginAtMultiplesOf16Bytes) {
  RunPlan plan =
      cpu_plan(tiny_llama_config(), {"model.num_hidden_layers=1", "batch.sequence=15", "data.reset_attention_mask=true"});
  plan.model.sliding_window = 5;
  LoadedBuffers loaded(plan);
  ASSERT_GT(plan.num_micro_batches, 1);
  for (const MicroBatch& mb : loaded.buffers.micro_batches())
    for (const ConstTensorView& keys : {mb.first_key, mb.first_key_in_window}) {
      EXPECT_EQ(keys.shape(), (Shape{1, 15}));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(keys.data()) % 16, 0u);
    }
}

TEST(DocumentBuffers, RefuseStartsThatNoSampleCanHave) {
  const RunPlan plan = cpu_plan(tiny_llama_config(), {"model.num_hidden_layers=1", "data.reset_attention_mask=true"});
  LoadedBuffers loaded(plan);
  for (const std::int32_t third : {0, 3}) {
    const LoadSamples load = [third](std::int64_t, std::int64_t, const SampleSpans& spans) {
      spans.document_starts[1] = 1, spans.document_starts[2] = third;
    };
    EXPECT_THROW(loaded.buffers.load(load, 0, {8, 1, 1}, 0), InternalError) << third;
  }
}

TEST(DocumentBuffers, OfAWindowAloneAreTheSameInEveryMicroBatch) {
  RunPlan plan = cpu_plan(tiny_llama_config(), {"model.num_hidden_layers=1"});
  plan.model.sliding_window = 4;
  LoadedBuffers loaded(plan);
  for (const MicroBatch& mb : loaded.buffers.micro_batches()) {
    EXPECT_EQ(mb.first_key.shape(), Shape());
    EXPECT_EQ(LoadedBuffers::values(mb.first_key_in_window),
              (std::vector<std::int32_t>{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
    EXPECT_EQ(LoadedBuffers::values(mb.positions_by_sample).back(), 15);
  }
  plan.model.sliding_window = 16;  // all of the sequence
  EXPECT_EQ(LoadedBuffers(plan).buffers.micro_batches()[0].first_key_in_window.shape(), Shape());
}

// Rotary tables by length: a document of up to the original context turns as one that is alone.
TEST(DocumentBuffers, TakeTheRowsOfTheDocumentsLength) {
  RunPlan plan = cpu_plan(tiny_llama_config(), {"model.num_hidden_layers=1", "data.reset_position_ids=true"});
  plan.model.rope.scaling = RopeScaling::kLongRope;
  plan.model.rope.original_max_positions = 6;
  plan.model.rope.short_factors = plan.model.rope.long_factors =
      std::vector<double>(static_cast<std::size_t>(plan.model.rotary_dim() / 2), 1.0);
  LoadedBuffers loaded(plan);
  bool is_short = false, is_long = false;
  for (std::int64_t k = 0; k < plan.num_micro_batches; ++k) {
    std::vector<std::int32_t> starts(16);
    with_documents(3)(k, 1, {.document_starts = starts});
    const std::vector<std::int32_t> rows =
        LoadedBuffers::values(loaded.buffers.micro_batches()[static_cast<std::size_t>(k)].positions_by_sample);
    for (std::size_t s = 0; s < 16; ++s) {
      const auto length = std::ranges::count(starts, starts[s]);
      EXPECT_EQ(rows[s], static_cast<std::int32_t>(s) - starts[s] + (length <= 6 ? 16 : 0)) << "sample " << k << ", position " << s;
      (length <= 6 ? is_short : is_long) = true;
    }
  }
  EXPECT_TRUE(is_short && is_long);
}

TEST(DocumentBuffers, AreBookedOnlyWhereAsked) {
  const auto bytes = [](const Settings& settings) {
    const RunPlan plan = cpu_plan(tiny_llama_config(), settings);
    Doorbell doorbell;
    CpuDevice device(doorbell, CpuDeviceOptions{});
    ArenaPlan arena_plan;
    const BatchBuffers buffers(plan, device, 0, LossDetail::kOfBatches, arena_plan);
    return arena_plan.total_bytes();
  };
  const std::int64_t plain = bytes({}), one = kArenaAlignment, all = 8 * 16 * 4;  // 8 micro-batches of a sample, 64 bytes each
  EXPECT_EQ(bytes({"data.eod_mask_loss=true"}), plain);
  EXPECT_EQ(bytes({"data.reset_attention_mask=true"}), plain + all);
  EXPECT_EQ(bytes({"data.reset_position_ids=true"}), plain + 2 * (all - one));
}

TEST(DocumentInterval, IsHalfOfTheMeanDocument) {
  const auto interval = [](const Settings& settings) {
    return cpu_plan(tiny_llama_config(), settings).geometry(0).document_interval;
  };
  const std::string hides = "data.reset_attention_mask=true";
  EXPECT_EQ(interval({}), 0);
  EXPECT_EQ(interval({"data.mean_document=4"}), 0);
  EXPECT_EQ(interval({hides}), 16);
  EXPECT_EQ(interval({hides, "data.mean_document=7"}), 4);
  EXPECT_EQ(interval({hides, "data.mean_document=0.5"}), 1);
  EXPECT_EQ(interval({hides, "data.mean_document=1e9"}), 16);
}

}  // namespace
}  // namespace trident::testing
