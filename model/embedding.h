// The first unit: y = dropout(token embedding + learned position embedding, if the model has one).
#pragma once

#include "model/config/model_config.h"
#include "model/dropout.h"
#include "model/layer.h"
#include "tensor_parallel/vocab_parallel_embedding.h"

namespace trident {

class Embedding final : public Layer {
 public:
  explicit Embedding(const ModelConfig& config) : config_(config), dropout_(config.embedding_dropout, DropoutPlace::kEmbedding) {}

  void declare(ParamList& list) override;

 private:
  void run_forward(LayerPass& p, ConstTensorView x, TensorView y) const override;
  void run_recompute(LayerPass&, ConstTensorView) const override {}
  void run_backward_input(LayerPass& p, ConstTensorView x, TensorView d) const override;
  void run_backward_weight(LayerPass& p, ConstTensorView x) const override;

  // This rank's rows of the positions.
  static ConstTensorView local_positions(const LayerPass& p) {
    return p.batch.positions_by_row.range(p.geometry.row_offset(), p.geometry.local_rows());
  }

  ModelConfig config_;
  Dropout dropout_;
  VocabParallelEmbedding tokens_;
  ParamId positions_;
};

}  // namespace trident
