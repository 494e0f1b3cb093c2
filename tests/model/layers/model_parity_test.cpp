// Whole tiny models on 1, 2 and 4 tensor-parallel ranks against the reference model in double: loss and every parameter's gradient.
#include <gtest/gtest.h>

#include <cstdint>

#include "core/int_math.h"
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

// Logits a few rows at a time give the loss and the gradients of logits kept whole, over 1, 2 and 4 tensor-parallel ranks, whether
// the backward pass is split or not, and take the memory that they promise to.

using Backward = ModelRank::Backward;

// 16 rows: one at a time, pieces that do not divide them, all, and more than there are.
constexpr std::int64_t kChunks[] = {1, 5, 16, 100};

// A negative target in every piece of five rows but the last, and at the beginning of one.
Outcome run(const ModelConfig& config, const Layout& layout, int backwards = 1) {
  reference::ModelBatch batch = testing::tiny_batch(config);
  batch.targets[10] = -1;
  return run_layout(config, testing::tiny_weights(config), batch, layout, backwards);
}

struct Case {
  const char* name;
  ModelConfig config;
  int degree;
  bool sequence_parallel;

  std::string label() const { return fmt::format("{}_t{}{}", name, degree, sequence_parallel ? "_sp" : ""); }
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.label(); }
};

// Vocabularies are padded to a multiple of 128 rows per rank: of 50 tokens all ranks but the first hold nothing, of 300 the second
// of two ranks holds 44, and of four ranks the third holds 44 and the last nothing.
ModelConfig with_vocabulary(ModelConfig config, std::int64_t vocabulary) {
  config.vocab_size = vocabulary;
  return config;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const ModelConfig tied = testing::tiny_gpt2(), untied = testing::tiny_llama();
  for (const int degree : {1, 2, 4})
    for (const bool sequence_parallel : {false, true}) {
      if (degree == 1 && sequence_parallel) continue;
      all.push_back({"Gpt2", tied, degree, sequence_parallel});
      all.push_back({"Llama300", with_vocabulary(untied, 300), degree, sequence_parallel});
      all.push_back({"Gpt2Of300", with_vocabulary(tied, 300), degree, sequence_parallel});
    }
  return all;
}

class ChunkedHeadTest : public ::testing::TestWithParam<Case> {
 protected:
  Layout layout(DType compute = DType::kF32) const {
    return {.degree = GetParam().degree, .sequence_parallel = GetParam().sequence_parallel, .compute = compute};
  }
};

TEST_P(ChunkedHeadTest, EqualsTheWhole) {
  Layout l = layout();
  const Outcome whole = run(GetParam().config, l);
  for (const std::int64_t chunk : kChunks) {
    SCOPED_TRACE(fmt::format("{} rows at a time", chunk));
    l.head_chunk = chunk;
    l.backward = Backward::kFused;
    const Outcome fused = run(GetParam().config, l);
    EXPECT_NEAR(fused.loss, whole.loss, 1e-6 * whole.loss);
    expect_close(fused.gradients, whole.gradients, 1e-5, 1e-9);
    l.backward = Backward::kSplit;
    const Outcome split = run(GetParam().config, l);
    EXPECT_EQ(split.loss, fused.loss);
    EXPECT_TRUE(split.gradients == fused.gradients) << "split and fused backward differ";
  }
}

// The logits are rounded to bf16 before anything is summed, so what differs is a last bit of a gradient here and there.
TEST_P(ChunkedHeadTest, EqualsTheWholeInBf16) {
  Layout l = layout(DType::kBF16);
  const Outcome whole = run(GetParam().config, l);
  l.backward = Backward::kFused;
  for (const std::int64_t chunk : {5, 16}) {
    SCOPED_TRACE(fmt::format("{} rows at a time", chunk));
    l.head_chunk = chunk;
    const Outcome outcome = run(GetParam().config, l);
    EXPECT_NEAR(outcome.loss, whole.loss, 1e-5 * whole.loss);
    expect_close(outcome.gradients, whole.gradients, 4e-3, 1e-4);
  }
}

TEST_P(ChunkedHeadTest, GradientsAccumulateOverMicroBatches) {
  Layout l = layout();
  l.head_chunk = 5;
  l.backward = Backward::kFused;
  Outcome doubled = run(GetParam().config, l);
  for (auto& [name, values] : doubled.gradients)
    for (double& value : values) value *= 2;
  expect_close(run(GetParam().config, l, 2).gradients, doubled.gradients, 1e-6, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ChunkedHeadTest, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.label(); });

// The sums of a rank do not overflow, nor vanish, where the largest logits are far apart and lie on different ranks.
TEST(ChunkedHead, LargeLogitsOnOneRank) {
  const ModelConfig config = with_vocabulary(testing::tiny_llama(), 300);
  testing::LogicalTensors weights = testing::tiny_weights(config);
  std::vector<double>& head = weights.at("lm_head.weight");
  for (std::size_t i = 0; i < head.size(); ++i) head[i] *= i / 16 % 150 == 7 ? 300 : 1;  // tokens 7 and 157
  const reference::ModelBatch batch = testing::tiny_batch(config);
  Layout l{.degree = 2};
  const Outcome whole = run_layout(config, weights, batch, l);
  ASSERT_GT(whole.loss, 100);
  l.head_chunk = 3;
  const Outcome chunked = run_layout(config, weights, batch, l);
  EXPECT_NEAR(chunked.loss, whole.loss, 1e-6 * whole.loss);
  expect_close(chunked.gradients, whole.gradients, 1e-5, 1e-9);
}

TEST(ChunkedHead, AllocatesNothing) {
  const ModelConfig config = testing::tiny_gpt2();
  const reference::ModelBatch batch = testing::tiny_batch(config);
  const Layout layout{.degree = 2, .sequence_parallel = true, .compute = DType::kBF16, .head_chunk = 5};
  testing::run_tensor_ranks(layout.degree, partial_axes(config, {2, true}), [&](TensorRank& rank) {
    ModelRank model(rank, config, geometry_of(layout, batch, rank.rank()), testing::tiny_weights(config));
    model.set_batch(batch);
    const NoAllocationScope scope("a micro-batch");
    model.forward();
    model.backward(Accumulate::kNo, Backward::kFused);
  });
}

TEST(ChunkedHead, LogitsOfAllRowsAreNotThere) {
  const ModelConfig config = testing::tiny_llama();
  const reference::ModelBatch batch = testing::tiny_batch(config);
  testing::run_tensor_ranks(1, {}, [&](TensorRank& rank) {
    ModelRank model(rank, config, geometry_of({.head_chunk = 4}, batch, 0), testing::tiny_weights(config));
    EXPECT_THROW(model.with_logits([](ConstTensorView) {}), InternalError);
  });
}

// A head's saved and working bytes. R rows of width H, C columns, w bytes; ranges begin at multiples of 256 bytes.
TEST(ChunkedHead, TakesTheMemoryOfOneChunk) {
  const ModelConfig config = with_vocabulary(testing::tiny_llama(), 300);
  for (const int degree : {1, 2})
    for (const bool sequence_parallel : {false, true}) {
      if (degree == 1 && sequence_parallel) continue;
      testing::run_tensor_ranks(degree, {}, [&](TensorRank& rank) {
        const auto planned = [&](std::int64_t chunk, Region region) {
          const LayerGeometry geometry{.sequence = 64, .micro_batch = 2, .tensor_degree = degree, .tensor_rank = rank.rank(),
                                       .sequence_parallel = sequence_parallel, .compute = DType::kBF16, .head_chunk = chunk};
          ArenaPlan arena;
          const ModelConstants constants(config, geometry, arena);
          return plan_unit(*make_unit(config, head_unit(config)), geometry, config.hidden, constants, rank.device.ops())
              .region_bytes(region);
        };
        const auto range = [](std::int64_t bytes) { return round_up(bytes, kArenaAlignment); };
        const std::int64_t rows = 128, width = 16, columns = padded_vocabulary(config, degree) / degree;
        const std::int64_t full = sequence_parallel ? range(rows * width * 2) : 0;
        const std::int64_t local = range(rows / (sequence_parallel ? degree : 1) * width * 2);
        // A chunk's logits are made again by W, which then needs what each row had in the forward pass.
        const std::int64_t of_rows = 3 * range(rows * 4);
        EXPECT_EQ(planned(0, Region::kSavedForW) - planned(48, Region::kSavedForW), range(rows * columns * 2) - of_rows);
        EXPECT_EQ(planned(0, Region::kSaved) - planned(48, Region::kSaved), of_rows);
        EXPECT_EQ(planned(0, Region::kScratch), local + full);
        const std::int64_t maxima = degree > 1 ? range(rows * 4) : 0;
        EXPECT_EQ(planned(48, Region::kScratch), local + 2 * full + maxima + range(48 * columns * 2));
        EXPECT_EQ(planned(500, Region::kScratch), local + 2 * full + maxima + range(rows * columns * 2));
      });
    }
}

}  // namespace
}  // namespace trident
