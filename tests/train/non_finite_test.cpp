// A gradient that is not finite on one rank: no rank applies the step, one rank names the tensor, and training goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "device/no_allocation.h"
#include "tests/support/cpu_ranks.h"
#include "tests/support/layout_run.h"

namespace trident::testing {
namespace {

constexpr int kPoisonedStep = 1, kSteps = 3;

// One rank saw this.
struct PoisonedRank {
  std::vector<StepResult> results;
  std::vector<std::vector<float>> masters;  // after every step, all shards
  std::vector<double> eval_losses;          // after every step: shows the working copies of the weights
};

// Overwrites the last element that `store` alone answers for; its tensor's name, or "" where it answers for none.
std::string poison(const ParamStore& store, float value) {
  for (const ParamShard& shard : store.shards()) {
    if (!shard.counts_in_norm) continue;
    for (const ShardPiece& piece : shard.pieces) {
      if (!piece.norm_owner || piece.count == 0) continue;
      shard.grad.as<float>()[piece.shard_begin + piece.count - 1] = value;
      return piece.spec->name;
    }
  }
  return "";
}

std::vector<PoisonedRank> train_poisoned(const std::string& config, const std::vector<std::string>& settings, int poisoned_rank,
                                         float value, std::string* poisoned_name) {
  const RunPlan plan = cpu_plan(config, settings);
  const LoadSamples load = random_tokens(plan.model.vocab_size, plan.config.batch.sequence);
  std::vector<PoisonedRank> records(static_cast<std::size_t>(plan.world_size()));
  on_cpu_ranks(plan, [&](int rank, RankTrainer& trainer) {
    PoisonedRank& record = records[static_cast<std::size_t>(rank)];
    int step = 0;
    trainer.set_gradient_hook([&](const ParamStore& store) {
      const AllocationExemption name;  // the test's own
      if (step == kPoisonedStep && rank == poisoned_rank) *poisoned_name = poison(store, value);
    });
    for (; step < kSteps; ++step) {
      record.results.push_back(trainer.step(load));
      const double end_of_step = trainer.instruction_times().back().end;
      record.eval_losses.push_back(trainer.evaluate(load, 1, {}).loss);
      EXPECT_EQ(trainer.instruction_times().back().end, end_of_step) << "an evaluation replaced the times of the step";
      record.masters.push_back(masters_of(trainer.store()));
    }
  });
  return records;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_skipped(const std::string& config, const std::vector<std::string>& settings, int poisoned_rank, float value) {
  std::string name;
  const std::vector<PoisonedRank> records = train_poisoned(config, settings, poisoned_rank, value, &name);
  ASSERT_NE(name, "");
  int named = 0;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const PoisonedRank& r = records[rank];
    ASSERT_EQ(r.results.size(), static_cast<std::size_t>(kSteps));
    EXPECT_TRUE(r.results[0].applied);
    EXPECT_FALSE(r.results[1].applied) << "rank " << rank;
    EXPECT_TRUE(r.results[2].applied) << "rank " << rank;
    EXPECT_EQ(r.results[1].updates, 1);
    EXPECT_EQ(r.results[2].updates, 2);  // the learning rate's course goes on where it stopped
    EXPECT_TRUE(same_bits(r.masters[0], r.masters[1])) << "rank " << rank << " changed its weights";
    EXPECT_EQ(r.eval_losses[0], r.eval_losses[1]);
    EXPECT_FALSE(same_bits(r.masters[1], r.masters[2])) << "rank " << rank << " does not go on";
    if (r.results[1].non_finite.empty()) continue;
    ++named;
    EXPECT_EQ(r.results[1].non_finite, fmt::format("rank {}: {}", poisoned_rank, name));
    EXPECT_EQ(static_cast<int>(rank), poisoned_rank);
  }
  EXPECT_EQ(named, 1);
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

TEST(NonFinite, OneRank) { expect_skipped(tiny_llama_config(), {"model.num_hidden_layers=2"}, 0, kNaN); }

TEST(NonFinite, EightRanksSkipTheStepOnEveryAxis) {
  for (const int rank : {0, 5, 7})
    expect_skipped(tiny_llama_config(),
                   {"model.num_hidden_layers=2", "parallel=2DP x 2PP x 2TP", "parallel.sequence_parallel=true"}, rank, kNaN);
}

TEST(NonFinite, ShardedParametersSkipAnInfinity) {
  expect_skipped(tiny_llama_config(), {"model.num_hidden_layers=2", "parallel=4DP", "parallel.zero=zero3"}, 3, -kInfinity);
  expect_skipped(tiny_llama_config(),
                 {"model.num_hidden_layers=2", "parallel=2DP x 2PP", "parallel.zero=zero2", "precision.compute=bf16"}, 1,
                 kInfinity);
}

// Naming the tensor takes memory, the promise of a step without allocations notwithstanding.
TEST(NonFinite, SkippingAllocatesNothing) {
  expect_skipped(tiny_llama_config(), {"model.num_hidden_layers=2", "parallel=2DP x 2PP", "debug.no_alloc=true"}, 1, kNaN);
}

TEST(NonFinite, TiedEmbeddingsSkipTogether) {
  expect_skipped(tiny_gpt2_config(), {"model.n_layer=2", "parallel=2PP x 2DP"}, 0, kNaN);
}

}  // namespace
}  // namespace trident::testing
