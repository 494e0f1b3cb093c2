// Whole tiny models on 1, 2 and 4 tensor-parallel ranks against the reference model in double: loss and every parameter's gradient.
#include <gtest/gtest.h>

#include <cmath>

#include "device/no_allocation.h"
#include "tests/model/layers/tiny_models.h"
#include "tests/support/model_rank.h"

namespace trident {
namespace {

using testing::GradientCollector;
using testing::LogicalTensors;
using testing::ModelRank;
using testing::TensorRank;

struct Layout {
  int degree = 1;
  bool sequence_parallel = false;
  RecomputePolicy recompute = RecomputePolicy::kNone;
  DType compute = DType::kF32;
};

struct Outcome {
  double loss = 0.0;
  LogicalTensors gradients;
};

LayerGeometry geometry_of(const Layout& layout, const reference::ModelBatch& batch, int rank) {
  return {.sequence = batch.sequence,
          .micro_batch = batch.samples,
          .tensor_degree = layout.degree,
          .tensor_rank = rank,
          .sequence_parallel = layout.sequence_parallel,
          .compute = layout.compute,
          .recompute = layout.recompute,
          .seed = batch.seed};
}

// `backwards` micro-batches (the same one), their gradients accumulated.
Outcome run_product(const ModelConfig& config, const Layout& layout, int backwards = 1) {
  const reference::ModelBatch batch = testing::tiny_batch(config);
  const LogicalTensors weights = testing::tiny_weights(config);
  const TensorLayout tensor{layout.degree, layout.sequence_parallel};
  check_layout(config, tensor, batch.sequence);
  GradientCollector collector(layout.degree);
  std::vector<double> losses(static_cast<std::size_t>(layout.degree));
  testing::run_tensor_ranks(layout.degree, partial_axes(config, tensor), [&](TensorRank& rank) {
    ModelRank model(rank, config, geometry_of(layout, batch, rank.rank()), weights);
    model.set_batch(batch);
    for (int i = 0; i < backwards; ++i) {
      losses[static_cast<std::size_t>(rank.rank())] = model.forward();
      model.backward(i == 0 ? Accumulate::kNo : Accumulate::kYes);
    }
    model.collect(collector);
  });
  for (const double loss : losses) EXPECT_EQ(loss, losses.front());
  return {losses.front(), collector.whole()};
}

double norm_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double norm_of(const LogicalTensors& tensors) {
  double sum = 0.0;
  for (const auto& [name, values] : tensors) sum += norm_of(values) * norm_of(values);
  return std::sqrt(sum);
}

// |g - r| <= tolerance |r| + floor |G| for every tensor, 2-norms, G the whole gradient.
void expect_close(const LogicalTensors& gradients, const LogicalTensors& reference, double tolerance, double floor) {
  const double whole = norm_of(reference);
  ASSERT_EQ(gradients.size(), reference.size());
  for (const auto& [name, expected] : reference) {
    std::vector<double> difference = gradients.at(name);
    ASSERT_EQ(difference.size(), expected.size()) << name;
    for (std::size_t i = 0; i < expected.size(); ++i) difference[i] -= expected[i];
    EXPECT_LE(norm_of(difference), tolerance * norm_of(expected) + floor * whole) << name;
  }
}

Outcome run_reference(const ModelConfig& config) {
  reference::Model<double> model(config, testing::tiny_weights(config));
  const double loss = model.run(testing::tiny_batch(config));
  return {loss, model.gradients()};
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
    const Outcome remade = run_product(config, {.degree = 2, .sequence_parallel = true, .recompute = policy});
    EXPECT_EQ(remade.loss, kept.loss);
    EXPECT_TRUE(remade.gradients == kept.gradients) << "policy " << static_cast<int>(policy);
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
  const ModelConfig config = testing::tiny_qwen3();
  const Outcome expected = run_reference(config);
  for (const int degree : {1, 4}) {
    const Outcome outcome = run_product(config, {.degree = degree, .sequence_parallel = degree > 1, .compute = DType::kBF16});
    EXPECT_NEAR(outcome.loss, expected.loss, 1e-2 * expected.loss);
    expect_close(outcome.gradients, expected.gradients, 0.06, 1e-3);
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
  for (const ModelConfig& config : {testing::with_dropout(testing::tiny_gpt2()), testing::tiny_qwen3()}) {
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
      UnitPlan plan({.sequence = 8, .micro_batch = 2, .recompute = policy}, rank.device.ops());
      make_unit(testing::tiny_llama(), 1)->plan(plan);
      return plan.region_bytes(Region::kSaved);
    };
    EXPECT_LT(saved(RecomputePolicy::kSelective), saved(RecomputePolicy::kNone));
    EXPECT_EQ(saved(RecomputePolicy::kFull), 0);
  });
}

}  // namespace
}  // namespace trident
