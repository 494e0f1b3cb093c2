// Training in fp16: near fp32, with a scale that is found by overflowing, on all ranks alike, and
// that changes nothing but what can be represented.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "optim/loss_scaler.h"
#include "tests/support/cpu_ranks.h"
#include "tests/support/error_text.h"
#include "tests/support/layout_run.h"

namespace trident::testing {
namespace {

// One rank saw this.
struct RankRecord {
  std::vector<StepResult> results;
  std::vector<std::vector<float>> masters;  // after every step, all shards
};

RunPlan plan_of(const std::vector<std::string>& settings) {
  return cpu_plan(tiny_llama_config(), plus({"model.num_hidden_layers=2", "precision.compute=fp16"}, settings));
}

enum class Batches : std::uint8_t { kAllDifferent, kAllTheSame };

std::vector<RankRecord> train(const RunPlan& plan, int steps, Batches batches = Batches::kAllDifferent) {
  const LoadSamples load = random_tokens(plan.model.vocab_size, plan.config.batch.sequence);
  const LoadSamples same = [&](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    load(first % plan.config.batch.global, count, spans);
  };
  std::vector<RankRecord> records(static_cast<std::size_t>(plan.world_size()));
  on_cpu_ranks(plan, [&](int rank, RankTrainer& trainer) {
    RankRecord& record = records[static_cast<std::size_t>(rank)];
    for (int step = 0; step < steps; ++step) {
      record.results.push_back(trainer.step(batches == Batches::kAllTheSame ? same : load));
      record.masters.push_back(masters_of(trainer.store()));
    }
  });
  return records;
}

int skipped_at_first(const std::vector<StepResult>& results) {
  const auto applied = std::find_if(results.begin(), results.end(), [](const StepResult& r) { return r.applied; });
  return static_cast<int>(applied - results.begin());
}

// A relative error of 2^-11 at every rounding between the tokens and the loss, as if all had one sign: two layers with about a
// dozen results each (two norms with two roundings, qkv, rotation, probabilities, attention, its projection, gate and up, their
// product, the MLP's projection, two sums), then embedding, norm and logits; the loss is a difference of numbers of its own size.
// After an update the gradients differ as much again, so twice that. (The losses differ by a sixth of it.)
TEST(Fp16, TrainsAsFp32Does) {
  constexpr double kRoundings = 2 * 14 + 4, kTolerance = 2 * kRoundings * 0x1p-11;
  constexpr int kSteps = 20;
  const RunPlan half = plan_of({"precision.loss_scale=1024"}), single = plan_of({"precision.compute=fp32"});
  ASSERT_EQ(half.compute, DType::kF16);
  const std::vector<StepResult> a = train(half, kSteps)[0].results, b = train(single, kSteps)[0].results;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(a[i].applied);
    EXPECT_NEAR(a[i].loss, b[i].loss, kTolerance * b[i].loss) << "step " << i;
    EXPECT_NEAR(a[i].grad_norm, b[i].grad_norm, 4 * kTolerance * b[i].grad_norm) << "step " << i;
    largest = std::max(largest, std::abs(a[i].loss - b[i].loss));
  }
  EXPECT_GT(largest, 0) << "nothing was computed in fp16";
}

TEST(Fp16, TheScaleIsFoundByAllRanksTogether) {
  const RunPlan plan = plan_of({"parallel=2DP x 2PP x 2TP", "parallel.sequence_parallel=true", "debug.no_alloc=true"});
  constexpr int kSteps = 24;
  const std::vector<RankRecord> records = train(plan, kSteps);
  const std::vector<StepResult>& first = records[0].results;
  const int skipped = skipped_at_first(first);
  // A target's logit gets a gradient of (1 - p) * scale / 128 tokens, p about 1 / vocabulary: beyond 65504 down to a scale of 2^24.
  // 2^32 overflows twice before it shrinks.
  ASSERT_EQ(plan.tokens_per_step(), 128);
  EXPECT_GE(skipped, 10);
  ASSERT_LT(skipped, kSteps - 3);
  LossScaler predicted = LossScaler::dynamic();
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].loss_scale, predicted.scale()) << "step " << i;
    EXPECT_EQ(first[i].scale_can_shrink, !first[i].applied);
    predicted.update(first[i].applied ? Overflow::kNo : Overflow::kYes);
    EXPECT_EQ(first[i].next_loss_scale, predicted.scale()) << "step " << i;
  }
  EXPECT_EQ(first[static_cast<std::size_t>(skipped)].loss_scale, std::ldexp(1.0, 32 - (skipped - 1)));
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const RankRecord& r = records[rank];
    std::int64_t updates = 0;
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(r.results[i].applied, first[i].applied) << "rank " << rank << ", step " << i;
      EXPECT_EQ(r.results[i].loss_scale, first[i].loss_scale);
      EXPECT_EQ(r.results[i].updates, updates += r.results[i].applied ? 1 : 0);
      if (i == 0) continue;
      EXPECT_EQ(r.masters[i] == r.masters[i - 1], !r.results[i].applied) << "rank " << rank << ", step " << i;
    }
  }
}

// Whoever finds the scale trains on as one who was told it: skipped batches leave nothing behind.
TEST(Fp16, SkippedBatchesLeaveNothingBehind) {
  constexpr int kUpdates = 3, kMost = 24;
  const std::vector<RankRecord> found = train(plan_of({"parallel=2DP"}), kMost, Batches::kAllTheSame);
  const auto skipped = static_cast<std::size_t>(skipped_at_first(found[0].results));
  ASSERT_LE(skipped + kUpdates, found[0].results.size());
  const double scale = found[0].results[skipped].loss_scale;
  const std::vector<RankRecord> told =
      train(plan_of({"parallel=2DP", fmt::format("precision.loss_scale={:.0f}", scale)}), kUpdates, Batches::kAllTheSame);
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    for (std::size_t i = 0; i < kUpdates; ++i) {
      ASSERT_TRUE(found[rank].results[skipped + i].applied) << "update " << i;
      EXPECT_EQ(told[rank].results[i].loss, found[rank].results[skipped + i].loss);
      EXPECT_EQ(told[rank].results[i].grad_norm, found[rank].results[skipped + i].grad_norm);
      EXPECT_EQ(told[rank].results[i].lr, found[rank].results[skipped + i].lr);
      EXPECT_TRUE(told[rank].masters[i] == found[rank].masters[skipped + i]) << "rank " << rank << ", update " << i;
    }
  }
}

// Logits in chunks overflow where whole ones do.
TEST(Fp16, ChunksOfLogitsFindTheSameScale) {
  const std::vector<StepResult> whole = train(plan_of({}), 16)[0].results,
                                chunked = train(plan_of({"recompute.head_chunk=5"}), 16)[0].results;
  ASSERT_LT(skipped_at_first(whole), 14);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(chunked[i].applied, whole[i].applied) << "step " << i;
    EXPECT_EQ(chunked[i].loss_scale, whole[i].loss_scale) << "step " << i;
    EXPECT_NEAR(chunked[i].loss, whole[i].loss, 1e-3 * whole[i].loss) << "step " << i;
    if (whole[i].applied) {
      EXPECT_NEAR(chunked[i].grad_norm, whole[i].grad_norm, 1e-2 * whole[i].grad_norm) << "step " << i;
    }
  }
}

// Where nothing leaves the range of the format, a power of two changes exponents only: shown in fp32, in which no gradient is lost.
TEST(Fp16, AScaleChangesNoBit) {
  RunPlan plain = plan_of({"parallel=2DP x 2TP", "parallel.zero=zero2", "precision.loss_scale=1"});
  RunPlan scaled = plan_of({"parallel=2DP x 2TP", "parallel.zero=zero2", "precision.loss_scale=65536"});
  plain.compute = scaled.compute = DType::kF32;
  const std::vector<RankRecord> a = train(plain, 4), b = train(scaled, 4);
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    for (std::size_t i = 0; i < a[rank].results.size(); ++i) {
      EXPECT_EQ(b[rank].results[i].loss_scale, 65536);
      EXPECT_EQ(a[rank].results[i].loss, b[rank].results[i].loss);
      EXPECT_EQ(a[rank].results[i].grad_norm, b[rank].results[i].grad_norm);
      EXPECT_TRUE(a[rank].masters[i] == b[rank].masters[i]) << "rank " << rank << ", step " << i;
    }
  }
}

// The scale is needed because the mean over many tokens makes gradients so small that fp16 keeps a few bits of them.
TEST(Fp16, AScaleKeepsSmallGradients) {
  const auto gradients = [](const std::vector<std::string>& precision) {
    LayoutRunOptions options;
    options.steps = 1;
    return run_layout(tiny_llama_config(), plus({"batch.global=256", "batch.micro=64", "model.num_hidden_layers=2"}, precision),
                      options);
  };
  const LayoutRun exact = gradients({"precision.compute=fp32"});
  // Returns the error as a share of the gradient's 2-norm.
  const auto error = [&](double scale) {
    const LayoutRun run = gradients({"precision.compute=fp16", fmt::format("precision.loss_scale={:.0f}", scale)});
    double squares = 0, errors = 0;
    for (const auto& [name, values] : exact.gradients) {
      const std::vector<float>& scaled = run.gradients.at(name);
      for (std::size_t i = 0; i < values.size(); ++i) {
        squares += double{values[i]} * values[i];
        errors += std::pow(scaled[i] / scale - values[i], 2);
      }
    }
    return std::sqrt(errors / squares);
  };
  const double plain = error(1), scaled = error(65536);
  EXPECT_LT(scaled, 64 * 0x1p-11);
  EXPECT_GT(plain, 4 * scaled) << "of " << scaled;
}

TEST(Fp16, ASingleScaleThatOverflowsCannotShrink) {
  const std::vector<StepResult> results = train(plan_of({"precision.loss_scale=4294967296"}), 2)[0].results;
  for (const StepResult& r : results) {
    EXPECT_FALSE(r.applied);
    EXPECT_FALSE(r.scale_can_shrink);
    EXPECT_EQ(r.next_loss_scale, 4294967296);
    EXPECT_NE(r.non_finite, "");
  }
}

TEST(Fp16, ThePlanSaysHowItIsComputed) {
  EXPECT_EQ(plan_of({}).compute_reason,
            "precision.compute = fp16; on this processor values are stored in fp16 and multiplied in fp32");
}

}  // namespace
}  // namespace trident::testing
