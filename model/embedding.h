// The first unit: y = dropout(token embedding + learned position embedding, if the model has one).
#pragma once

#include <cstdint>

#include "model/dropout.h"
#include "model/layer.h"
#include "model/model_config.h"
#include "tensor_parallel/vocab_parallel_embedding.h"

namespace trident {

class Embedding final : public Layer {
 public:
  explicit Embedding(const ModelConfig& config) : config_(config), dropout_(config.embedding_dropout, DropoutPlace::kEmbedding) {}

  void declare(ParamList& list) override;
  void plan(UnitPlan& plan) override;
  void forward(const LayerRun& run, ConstTensorView x, TensorView y) const override;
  void recompute(const LayerRun&, ConstTensorView) const override {}
  void backward_input(const LayerRun& run, ConstTensorView x, TensorView d) const override;
  void backward_weight(const LayerRun& run, ConstTensorView x) const override;

 private:
  // This rank's rows of the positions.
  ConstTensorView local_positions(const LayerRun& run) const { return run.batch.positions_by_row.range(first_row_, local_rows_); }

  ModelConfig config_;
  Dropout dropout_;
  VocabParallelEmbedding tokens_;
  ParamId positions_;
  std::int64_t first_row_ = 0, local_rows_ = 0;
  RegionTensor looked_up_;  // T[S',B,H]: position embeddings
};

}  // namespace trident
