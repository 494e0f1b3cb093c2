// Whole tiny models on 1, 2 and 4 tensor-parallel ranks against the reference model in double: loss and every parameter's gradient.
#include <gtest/gtest.h>

#include "device/no_allocation.h"
#include "tests/model/layers/layout_outcome.h"
#include "tests/model/layers/tiny_models.h"

namespace trident {
namespace {

using testing::expect_close;
using testing::geometry_of;
using testing::Layout;
using testing::LogicalTensors;
using testing::ModelRank;
using testing::Outcome;
using testing::TensorRank;

// The tiny batch and weights of a model over the ranks of a layout.
Outcome run_product(const ModelConfig& config, const Layout& layout, int backwards = 1) {
  return run_layout(config, testing::tiny_weights(config), testing::tiny_batch(config), layout, backwards);
}

Outcome run_reference(const ModelConfig& config) {
  reference::Model<double> model(config, testing::tiny_weights(config));
  const double loss = model.run(testing::tiny_batch(config));
  return {loss, {}, model.gradients()};
}

class ModelParityTest : public ::testing::TestWithParam<testing::TinyModel> {};

TEST_P(ModelParityTest, EveryLayoutEqualsTheReference) {
  const ModelConfig config = GetParam().config;
  const Outcome expected = run_reference(config);
  for (const int degree : {1, 2, 4})
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(fmt::format("tensor {}, sequence parallel {}", degree, sequence_parallel));
      const Outcome outcome = run_product(config, {.degree = degree, .sequence_parallel = sequence_parallel});
      EXPECT_NEAR(outcome.loss, expected.loss, 1e-6 * expected.loss);
      expect_close(outcome.gradients, expected.gradients, 1e-5, 1e-7);
    }
}

TEST_P(ModelParityTest, RecomputeIsBitEqual) {
  const ModelConfig config = GetParam().config;
  const Outcome kept = run_product(config, {.degree = 2, .sequence_parallel = true});
  for (const RecomputePolicy policy : {RecomputePolicy::kSelective, RecomputePolicy::kFull}) {
    const Outcome recomputed = run_product(config, {.degree = 2, .sequence_parallel = true, .recompute = policy});
    EXPECT_EQ(recomputed.loss, kept.loss);
    EXPECT_TRUE(recomputed.gradients == kept.gradients) << "policy " << static_cast<int>(policy);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelParityTest, ::testing::ValuesIn(testing::tiny_models()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ModelTest, GradientsAccumulateOverMicroBatches) {
  const ModelConfig config = testing::tiny_gpt2();
  const Layout layout{.degree = 2, .sequence_parallel = true};
  const Outcome once = run_product(config, layout), twice = run_product(config, layout, 2);
  LogicalTensors doubled = once.gradients;
  for (auto& [name, values] : doubled)
    for (double& value : values) value *= 2;
  expect_close(twice.gradients, doubled, 1e-6, 1e-8);
}

TEST(ModelTest, Bf16StaysNearTheReference) {
  for (const ModelConfig& config : {testing::tiny_qwen3(), testing::tiny_olmo2()}) {
    const Outcome expected = run_reference(config);
    for (const int degree : {1, 4}) {
      const Outcome outcome = run_product(config, {.degree = degree, .sequence_parallel = degree > 1, .compute = DType::kBF16});
      EXPECT_NEAR(outcome.loss, expected.loss, 1e-2 * expected.loss);
      expect_close(outcome.gradients, expected.gradients, 0.06, 1e-3);
    }
  }
}

TEST(ModelTest, EvaluationDropsNothing) {
  const ModelConfig plain = testing::tiny_gpt2(), dropping = testing::with_dropout(plain);
  const reference::ModelBatch batch = testing::tiny_batch(plain);
  const LogicalTensors weights = testing::tiny_weights(plain);
  testing::run_tensor_ranks(1, {}, [&](TensorRank& rank) {
    const LayerGeometry g = geometry_of({}, batch, 0);
    ModelRank a(rank, plain, g, weights), b(rank, dropping, g, weights);
    a.set_batch(batch);
    b.set_batch(batch);
    const double loss = a.forward();
    EXPECT_NE(b.forward(), loss);
    b.batch().training = false;
    EXPECT_EQ(b.forward(), loss);
  });
}

TEST(ModelTest, DropoutChangesWithTheStepOnly) {
  const ModelConfig config = testing::with_dropout(testing::tiny_gpt2());
  const reference::ModelBatch batch = testing::tiny_batch(config);
  testing::run_tensor_ranks(1, {}, [&](TensorRank& rank) {
    ModelRank model(rank, config, geometry_of({}, batch, 0), testing::tiny_weights(config));
    model.set_batch(batch);
    const double loss = model.forward();
    EXPECT_EQ(model.forward(), loss);
    model.batch().step += 1;
    EXPECT_NE(model.forward(), loss);
  });
}

// Forward and backward of a micro-batch allocate nothing on the rank's thread.
TEST(ModelTest, AllocatesNothing) {
  for (const ModelConfig& config : {testing::with_dropout(testing::tiny_gpt2()), testing::tiny_qwen3(), testing::tiny_olmo2()}) {
    const reference::ModelBatch batch = testing::tiny_batch(config);
    const Layout layout{.degree = 2, .sequence_parallel = true, .recompute = RecomputePolicy::kFull};
    testing::run_tensor_ranks(layout.degree, partial_axes(config, {2, true}), [&](TensorRank& rank) {
      ModelRank model(rank, config, geometry_of(layout, batch, rank.rank()), testing::tiny_weights(config));
      model.set_batch(batch);
      const NoAllocationScope scope("a micro-batch");
      model.forward();
      model.backward(Accumulate::kNo);
    });
  }
}

// The memory of a policy: selective keeps less than none, full keeps nothing of a block.
TEST(ModelTest, RecomputePoliciesSaveMemory) {
  testing::run_tensor_ranks(1, {}, [&](TensorRank& rank) {
    const auto saved = [&](RecomputePolicy policy) {
      const ModelConfig config = testing::tiny_llama();
      const LayerGeometry geometry{.sequence = 8, .micro_batch = 2, .recompute = policy};
      ArenaPlan arena;
      const ModelConstants constants(config, geometry, arena);
      const UnitPlan plan = plan_unit(*make_unit(config, 1), geometry, config.hidden, constants, rank.device.ops());
      return plan.region_bytes(Region::kSaved) + plan.region_bytes(Region::kSavedForW);
    };
    EXPECT_LT(saved(RecomputePolicy::kSelective), saved(RecomputePolicy::kNone));
    EXPECT_EQ(saved(RecomputePolicy::kFull), 0);
  });
}

}  // namespace
}  // namespace trident
