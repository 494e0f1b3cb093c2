// Context parallelism and sharding within groups, which searches estimate and nothing trains yet: their memory against dry runs of
// what a rank of them does, their communication against sums by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/price/cluster.h"
#include "planner/price/gpu_prices.h"
#include "planner/search/layout_costs.h"
#include "tests/train/large_machine.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

constexpr std::int64_t kHidden = 512, kKeyWidth = 256;  // 8 heads, 4 of keys and values, of 64

TrainConfig small_config(std::int64_t batch, std::int64_t sequence) {
  const std::string text =
      R"({"model": {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
                    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 2048},
          "batch": {"global": )" + std::to_string(batch) + R"(, "sequence": )" + std::to_string(sequence) +
      R"(}, "optimizer": {"lr": 1e-3}})";
  return parse_train_config(text, "a test", {"run.dir=unused", "run.steps=1", "data.train=none", "precision.compute=bf16"});
}

Cluster cluster() { return find_cluster(shipped_price_book(), "h100_sxm_ndr"); }

// The costs of layouts of one batch.
struct Costs {
  explicit Costs(const TrainConfig& config)
      : prices(cluster().gpu, cluster().links), costs(config, resolve_model(config), kLargeMachine, nullptr, prices) {}
  // Seconds of a block without those of launches.
  struct Block {
    double forward = 0, first_backward = 0, backward = 0, reduce = 0, gather = 0, update = 0;
  };
  Block block(const SearchLayout& layout) {
    const auto seconds = [&](const PassRecord& pass) {
      const TimeParts parts = price_pass(pass, costs.grid(layout), prices);
      return parts.total() - parts[TimePart::kLaunch];
    };
    const UnitPasses& passes = costs.passes(layout);
    const UnitStore& store = costs.stores(layout, costs.memory(layout).front().gathers_on_use).units[UnitKind::kBlock];
    return {seconds(passes.forward[UnitKind::kBlock]), seconds(passes.first_backward[UnitKind::kBlock]),
            seconds(passes.backward[UnitKind::kBlock]), seconds(store.reduce), seconds(store.gather), seconds(store.update)};
  }
  GpuPrices prices;
  LayoutCosts costs;
};

// Every use of every rank is that of a dry run of `trained` with `config`, but `more` bytes of communication.
void expect_memory(LayoutCosts& costs, const SearchLayout& layout, const TrainConfig& config, const SearchLayout& trained,
                   std::int64_t more) {
  const RunPlan plan = make_run_plan(with_layout(config, trained), resolve_model(config), trained.gpus(), kLargeMachine);
  const std::vector<ArenaMemory> ranks = costs.memory(layout);
  ASSERT_EQ(static_cast<int>(ranks.size()), layout.pipeline);
  for (int rank = 0; rank < layout.pipeline; ++rank) {
    const DryRun dry = dry_run(plan, plan.grid.rank({.pipeline = rank}), nullptr, DryWork::kConstruct);
    for (const MemoryUse use : kMemoryUses)
      EXPECT_EQ(ranks[static_cast<std::size_t>(rank)][use],
                dry.arena.total_bytes(use) + (use == MemoryUse::kCommunication ? more : 0))
          << to_string(layout) << ", rank " << rank << ", " << to_string(use);
  }
}

// A rank of four that share sequences of 2,048 has the activations of sequences of 512, and parameters, gradients and optimizer as
// 2 x 4 ranks divide them; beside that two blocks of keys and values and two of their gradients.
TEST(UntrainedLayouts, ContextParallelMemoryIsThatOfAPartAndItsRing) {
  Costs of(small_config(16, 2048));
  for (const ZeroPreset zero : {ZeroPreset::kDdp, ZeroPreset::kZero1, ZeroPreset::kZero3}) {
    const SearchLayout layout{.data = 2, .context = 4, .pipeline = 2, .micro = 2, .zero = zero};
    EXPECT_FALSE(layout.trainable());
    const SearchLayout part{.data = 8, .pipeline = 2, .micro = 2, .zero = zero};
    const std::int64_t keys_and_values = 2 * (2 * 512) * kKeyWidth * 2;  // two tensors, micro-batches of two parts, bf16
    expect_memory(of.costs, layout, small_config(64, 512), part, 4 * keys_and_values);
  }
}

// Each of four ranks computes a quarter of the lower triangle of all scores: four times its own part's. Keys and values go to three
// ranks, of the next GPU over NVLink; with their gradients they do so twice more backwards, and again for a forward done again.
TEST(UntrainedLayouts, ContextParallelPassesHaveAllScoresAndTheirRing) {
  Costs of(small_config(16, 2048)), part(small_config(64, 512));
  const LinkRates& link = cluster().links.nvlink;
  const double bytes = 2.0 * 2 * 512 * kKeyWidth * 2;
  const double ring = 3 * (link.hop_s + bytes / (link.bytes_per_s * link.message_fraction));
  const Cluster on = cluster();
  const auto best = std::max_element(on.gpu.attention.begin(), on.gpu.attention.end(),
                                     [](const AttentionRates& a, const AttentionRates& b) { return a.forward < b.forward; });
  // Products of queries with keys and of scores with values: half of 2 x 2 x batch x length x length x width each.
  const double flops = 0.5 * 4 * 2 * 512.0 * 512.0 * kHidden;
  const double start = on.gpu.kernel_start_s;  // each part of the keys is a kernel
  const double forward = flops / (on.gpu.peak_16bit * best->forward) + start;
  const double backward = 2.5 * flops / (on.gpu.peak_16bit * best->backward) + start;
  for (const RecomputePolicy recompute : {RecomputePolicy::kNone, RecomputePolicy::kFull}) {
    const SearchLayout layout{.data = 2, .context = 4, .micro = 2, .recompute = recompute};
    const SearchLayout alone{.data = 8, .micro = 2, .recompute = recompute};
    const Costs::Block with = of.block(layout), without = part.block(alone);
    const bool again = recompute == RecomputePolicy::kFull;
    const double more_forward = 3 * forward + ring;
    const double more_backward = 3 * backward + 2 * ring + (again ? more_forward : 0);
    EXPECT_NEAR(with.forward - without.forward, more_forward, 1e-9 * more_forward);
    EXPECT_NEAR(with.backward - without.backward, more_backward, 1e-9 * more_backward);
    EXPECT_NEAR(with.first_backward - without.first_backward, more_backward, 1e-9 * more_backward);
    // Parameters are shared by all eight, wherever sequences are.
    EXPECT_DOUBLE_EQ(with.reduce, without.reduce);
    EXPECT_DOUBLE_EQ(with.gather, without.gather);
    EXPECT_DOUBLE_EQ(with.update, without.update);
  }
}

// Eight data ranks in two groups of four hold what four data ranks hold.
TEST(UntrainedLayouts, ShardingWithinGroupsTakesTheMemoryOfOneGroup) {
  Costs of(small_config(32, 512));
  for (const ZeroPreset zero : {ZeroPreset::kZero1, ZeroPreset::kZero3}) {
    const SearchLayout layout{.data = 8, .pipeline = 2, .micro = 2, .zero = zero, .shard_ranks = 4};
    EXPECT_FALSE(layout.trainable());
    expect_memory(of.costs, layout, small_config(16, 512), {.data = 4, .pipeline = 2, .micro = 2, .zero = zero}, 0);
  }
}

// 32 data ranks in groups of a node's eight: what a group has reduced, an eighth of a block's parameters in f32, is summed over
// four nodes in a ring, 2 x 3/4 of it by each, one GPU for each of the eight rings.
TEST(UntrainedLayouts, ShardingWithinGroupsSumsShardsBetweenThem) {
  Costs of(small_config(128, 512)), group(small_config(32, 512));
  const SearchLayout layout{.data = 32, .micro = 2, .zero = ZeroPreset::kZero3, .shard_ranks = 8};
  const Costs::Block with = of.block(layout), without = group.block({.data = 8, .micro = 2, .zero = ZeroPreset::kZero3});
  // Queries and output, keys and values, three matrices of the MLP, two norms: a multiple of eight without gaps.
  const double elements = 2 * kHidden * kHidden + 2 * kHidden * kKeyWidth + 3 * kHidden * 1024 + 2 * kHidden;
  const LinkRates& network = cluster().links.network;
  const double sum = network.start_s + 2 * 3 * network.hop_s +
                     2 * 0.75 * (4 * elements / 8) / (network.bytes_per_s * network.fraction);
  EXPECT_NEAR(with.reduce - without.reduce, sum, 1e-9 * sum);
  EXPECT_DOUBLE_EQ(with.gather, without.gather);
  EXPECT_DOUBLE_EQ(with.update, without.update);
}

}  // namespace
}  // namespace trident
