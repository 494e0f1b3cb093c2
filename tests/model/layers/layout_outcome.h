// One micro-batch of a whole model over the ranks of a layout, and the comparison of what comes out.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "model/gpt.h"
#include "tests/support/model_rank.h"
#include "tests/support/reference_model.h"
#include "tests/support/tensor_rank.h"

namespace trident::testing {

struct Layout {
  int degree = 1;
  bool sequence_parallel = false;
  RecomputePolicy recompute = RecomputePolicy::kNone;
  DType compute = DType::kF32;
  std::int64_t head_chunk = 0;
  ModelRank::Backward backward = ModelRank::Backward::kSplit;
};

struct Outcome {
  double loss = 0.0;
  std::vector<double> logits;  // [R, V]; zeros with head_chunk
  LogicalTensors gradients;
};

inline LayerGeometry geometry_of(const Layout& layout, const reference::ModelBatch& batch, int rank) {
  return {.sequence = batch.sequence,
          .micro_batch = batch.samples,
          .tensor_degree = layout.degree,
          .tensor_rank = rank,
          .sequence_parallel = layout.sequence_parallel,
          .compute = layout.compute,
          .recompute = layout.recompute,
          .head_chunk = layout.head_chunk,
          .seed = batch.seed};
}

// Copies a rank's columns [R, padded V/t] into whole logits [R, V].
inline void gather_logits(std::vector<double>& whole, std::int64_t vocabulary, ConstTensorView local, int rank) {
  const std::int64_t columns = local.shape()[1];
  for (std::int64_t r = 0; r < local.shape()[0]; ++r)
    for (std::int64_t c = 0; c < columns && rank * columns + c < vocabulary; ++c)
      whole[static_cast<std::size_t>(r * vocabulary + rank * columns + c)] = element(local, r * columns + c);
}

// Runs the micro-batch `backwards` times over the layout's ranks, gradients accumulated.
inline Outcome run_layout(const ModelConfig& config, const LogicalTensors& weights, const reference::ModelBatch& batch,
                          const Layout& layout, int backwards = 1) {
  const TensorLayout tensor{layout.degree, layout.sequence_parallel};
  check_layout(config, tensor, batch.sequence);
  GradientCollector collector(layout.degree);
  std::vector<double> losses(static_cast<std::size_t>(layout.degree));
  std::vector<double> logits(static_cast<std::size_t>(batch.rows() * config.vocab_size));
  run_tensor_ranks(layout.degree, partial_axes(config, tensor), [&](TensorRank& rank) {
    ModelRank model(rank, config, geometry_of(layout, batch, rank.rank()), weights);
    model.set_batch(batch);
    double& loss = losses[static_cast<std::size_t>(rank.rank())];
    for (int i = 0; i < backwards; ++i) {
      model.forward();
      if (layout.head_chunk == 0)
        model.with_logits([&](ConstTensorView local) { gather_logits(logits, config.vocab_size, local, rank.rank()); });
      model.backward(i == 0 ? Accumulate::kNo : Accumulate::kYes, layout.backward);
      EXPECT_TRUE(i == 0 || model.loss() == loss) << model.loss() << " of backward " << i << ", before it " << loss;
      loss = model.loss();
    }
    model.collect(collector);
  });
  for (const double loss : losses) EXPECT_EQ(loss, losses.front());
  return {losses.front(), std::move(logits), collector.whole()};
}

inline double norm_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

inline double norm_of(const LogicalTensors& tensors) {
  double sum = 0.0;
  for (const auto& [name, values] : tensors) sum += norm_of(values) * norm_of(values);
  return std::sqrt(sum);
}

// |g - r| <= tolerance |r| + floor |G| for every tensor, 2-norms, G the whole gradient.
inline void expect_close(const LogicalTensors& gradients, const LogicalTensors& reference, double tolerance, double floor) {
  const double whole = norm_of(reference);
  ASSERT_EQ(gradients.size(), reference.size());
  for (const auto& [name, expected] : reference) {
    std::vector<double> difference = gradients.at(name);
    ASSERT_EQ(difference.size(), expected.size()) << name;
    for (std::size_t i = 0; i < expected.size(); ++i) difference[i] -= expected[i];
    EXPECT_LE(norm_of(difference), tolerance * norm_of(expected) + floor * whole) << name;
  }
}

}  // namespace trident::testing
