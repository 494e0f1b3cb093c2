// An update rule decides memory and checkpoints, and the optimizer hands it what the configuration says.
#include "optim/update_rule.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optim/sharded_optimizer.h"
#include "tests/support/tensor_rank.h"

namespace trident::testing {
namespace {

TEST(UpdateRule, EachKeepsItsStatesUnderTheNamesThatCheckpointsHave) {
  EXPECT_EQ(parse_update_rule("adamw"), UpdateRule::kAdamW);
  EXPECT_EQ(parse_update_rule("lion"), UpdateRule::kLion);
  EXPECT_EQ(parse_update_rule("sgd"), std::nullopt);
  EXPECT_EQ(state_keys(UpdateRule::kAdamW), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(state_keys(UpdateRule::kLion), std::vector<std::string>{"exp_avg"});
}

TEST(UpdateRule, NumbersOfAnUpdateAreThoseOfItsConfiguration) {
  const UpdateNumbers n = update_numbers({.betas = {0.5, 0.75}, .eps = 1e-3, .weight_decay = 0.1}, 2, 0.5, 0.25);
  EXPECT_EQ(n.lr, 0.5f);
  EXPECT_EQ(n.beta1, 0.5f);
  EXPECT_EQ(n.beta2, 0.75f);
  EXPECT_EQ(n.eps, 1e-3f);
  EXPECT_EQ(n.weight_decay, 0.1f);
  EXPECT_EQ(n.grad_scale, 0.25f);
  EXPECT_EQ(n.bias_correction1, static_cast<float>(1 / (1 - 0.25)));
  EXPECT_EQ(n.bias_correction2, static_cast<float>(1 / (1 - 0.5625)));
  EXPECT_EQ(n.update_number(), 2u);
}

UnitParams unit_of_two() {
  const auto spec = [](std::string name, Shape shape, bool decays) {
    ParamSpec s{.name = name, .weight_decay = decays};
    PartSpec part;
    part.tensor = name, part.tensor_shape = shape, part.rows = shape[0];
    s.parts.push_back(part);
    return s;
  };
  return {0, {spec("matrix", {8, 16}, true), spec("norm", {64}, false)}};
}

TEST(ShardedOptimizer, BooksAndUpdatesAsManyStatesAsTheRuleHas) {
  for (const UpdateRule rule : kUpdateRules) {
    SCOPED_TRACE(to_string(rule));
    run_tensor_ranks(1, {}, [&](TensorRank& rank) {
      ArenaPlan plan;
      ParamStore store({.policy = policy_of(ZeroPreset::kDdp), .compute = DType::kF32}, {unit_of_two()}, rank.context, plan);
      const OptimizerConfig config{.type = rule, .betas = {0.5, 0.5}, .eps = 1e-8, .weight_decay = 0.5};
      ShardedOptimizer optimizer(config, WeightRounding::kNearest, store, rank.context, plan);
      std::int64_t bytes = 0;
      for (const ParamShard& shard : store.shards()) bytes += num_states(rule) * 4 * shard.elements;
      EXPECT_EQ(plan.total_bytes(MemoryUse::kOptimizer), bytes);

      Arena arena(plan, rank.device.allocate(plan.total_bytes(), "arena"));
      store.bind(arena);
      optimizer.bind(arena);
      for (const ParamShard& shard : store.shards())
        for (std::int64_t e = 0; e < shard.elements; ++e) shard.master.as<float>()[e] = 2, shard.grad.as<float>()[e] = 4;
      optimizer.step(0, 1, 0.5, 0.25);  // the gradient is 1: both rules' first update is 1 and, where weights decay, 0.5 * 2 more
      std::int64_t decayed = 0, other = 0;
      for (std::size_t s = 0; s < store.shards().size(); ++s) {
        const ParamShard& shard = store.shards()[s];
        ASSERT_EQ(std::ssize(optimizer.states(s)), num_states(rule));
        for (const ShardPiece& piece : shard.pieces)
          for (std::int64_t e = piece.shard_begin; e < piece.shard_begin + piece.count; ++e) {
            (piece.spec->weight_decay ? decayed : other) += 1;
            ASSERT_NEAR(shard.master.as<float>()[e], piece.spec->weight_decay ? 1.0f : 1.5f, 1e-6) << e;
            for (const TensorView& state : optimizer.states(s)) ASSERT_EQ(state.as<float>()[e], 0.5f) << e;
          }
      }
      EXPECT_EQ(decayed, 8 * 16);
      EXPECT_EQ(other, 64);
    });
  }
}

}  // namespace
}  // namespace trident::testing
