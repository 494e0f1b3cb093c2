// What an update rule says of itself decides memory, checkpoints and what it is called with: seen with rules that are not AdamW.
#include "optim/update_rule.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "optim/sharded_optimizer.h"
#include "tests/support/tensor_rank.h"

namespace trident::testing {
namespace {

TEST(UpdateRule, AdamWKeepsTwoStatesUnderTheNamesThatCheckpointsHave) {
  ASSERT_EQ(parse_update_rule("adamw"), UpdateRuleKind::kAdamW);
  EXPECT_EQ(parse_update_rule("sgd"), std::nullopt);
  const auto rule = make_update_rule({.kind = UpdateRuleKind::kAdamW});
  EXPECT_EQ(state_keys(*rule), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(rule->cut(), UpdateCut::kElement);
}

TEST(UpdateRule, LionKeepsOne) {
  ASSERT_EQ(parse_update_rule("lion"), UpdateRuleKind::kLion);
  EXPECT_EQ(to_string(UpdateRuleKind::kLion), "lion");
  const auto rule = make_update_rule({.kind = UpdateRuleKind::kLion});
  EXPECT_EQ(state_keys(*rule), std::vector<std::string>{"exp_avg"});
  EXPECT_EQ(rule->cut(), UpdateCut::kElement);
}

struct Call {
  std::vector<float> marks;  // the first element of each state
  std::int64_t elements = 0;
  UpdateStep step;
};

class CountingRule final : public UpdateRule {
 public:
  CountingRule(std::size_t num_states, UpdateCut cut, std::vector<Call>& calls) : cut_(cut), calls_(calls) {
    for (std::size_t i = 0; i < num_states; ++i) states_.push_back({fmt::format("key_{}", i), fmt::format("state {}", i)});
  }
  std::span<const UpdateState> states() const override { return states_; }
  UpdateCut cut() const override { return cut_; }
  void update(Ops&, Stream&, const UpdateElements& elements, const UpdateStep& step) const override {
    Call& call = calls_.emplace_back(Call{{}, elements.master.num_elements(), step});
    for (const TensorView& state : elements.states) {
      EXPECT_EQ(state.num_elements(), call.elements);
      call.marks.push_back(*state.as<float>());
    }
    EXPECT_EQ(elements.grad.num_elements(), call.elements);
  }

 private:
  UpdateCut cut_;
  std::vector<Call>& calls_;
  std::vector<UpdateState> states_;
};

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

TEST(ShardedOptimizer, BooksAndHandsOutAsManyStatesAsTheRuleHas) {
  for (const std::size_t num_states : {0u, 1u, 3u}) {
    SCOPED_TRACE(num_states);
    run_tensor_ranks(1, {}, [&](TensorRank& rank) {
      ArenaPlan plan;
      ParamStore store({.policy = policy_of(ZeroPreset::kDdp), .compute = DType::kF32}, {unit_of_two()}, rank.context, plan);
      std::vector<Call> calls;
      ShardedOptimizer optimizer(std::make_unique<CountingRule>(num_states, UpdateCut::kElement, calls), WeightRounding::kNearest,
                                 store, rank.context, plan);
      std::int64_t bytes = 0;
      for (const ParamShard& shard : store.shards()) bytes += static_cast<std::int64_t>(num_states) * 4 * shard.elements;
      EXPECT_EQ(plan.total_bytes(MemoryUse::kOptimizer), bytes);

      Arena arena(plan, rank.device.allocate(plan.total_bytes(), "arena"));
      store.bind(arena);
      optimizer.bind(arena);
      std::vector<float> marks;
      for (std::size_t shard = 0; shard < store.shards().size(); ++shard) {
        const std::vector<TensorView> states = optimizer.states(shard);
        ASSERT_EQ(states.size(), num_states);
        for (std::size_t s = 0; s < num_states; ++s)
          for (std::int64_t e = 0; e < states[s].num_elements(); ++e) states[s].as<float>()[e] = static_cast<float>(s + 1);
      }
      for (std::size_t s = 0; s < num_states; ++s) marks.push_back(static_cast<float>(s + 1));

      optimizer.step(0, 7, 0.5, 0.25);
      std::int64_t decayed = 0, other = 0;
      for (const Call& call : calls) {
        (call.step.decays ? decayed : other) += call.elements;
        EXPECT_EQ(call.marks, marks) << "states in the order of the rule";
        EXPECT_EQ(call.step.update, 7);
        EXPECT_EQ(call.step.lr, 0.5);
        EXPECT_EQ(call.step.gradient_scale, 0.25);
        EXPECT_FALSE(call.step.rounding.has_value());
      }
      EXPECT_EQ(decayed, 8 * 16);
      EXPECT_EQ(other, 64);
    });
  }
}

TEST(ShardedOptimizer, RefusesARuleThatNeedsWholeMatrices) {
  run_tensor_ranks(1, {}, [](TensorRank& rank) {
    ArenaPlan plan;
    ParamStore store({.policy = policy_of(ZeroPreset::kDdp), .compute = DType::kF32}, {unit_of_two()}, rank.context, plan);
    std::vector<Call> calls;
    EXPECT_THROW(ShardedOptimizer(std::make_unique<CountingRule>(1, UpdateCut::kMatrix, calls), WeightRounding::kNearest, store,
                                  rank.context, plan),
                 InternalError);
  });
}

}  // namespace
}  // namespace trident::testing
