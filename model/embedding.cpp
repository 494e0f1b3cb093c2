#include "model/embedding.h"

#include "model/config/param_names.h"
#include "model/declare.h"

namespace trident {

void Embedding::declare(ParamList& list) {
  list.follow(config_.tuning);
  const EndNames names = end_names(config_);
  const int tensor_degree = list.layout().degree;
  const ParamId table = declare_vocabulary(list, config_, TiedEnd::kLookup, names.embedding, names.embedding);
  tokens_ = VocabParallelEmbedding(padded_vocabulary(config_, tensor_degree) / tensor_degree, config_.hidden, table);
  if (config_.position == PositionKind::kLearned)
    positions_ = declare_table(list, names.positions, config_.max_positions, config_.hidden, static_cast<float>(config_.init_std));
}

void Embedding::run_forward(LayerPass& p, ConstTensorView, TensorView y) const {
  tokens_.forward(p, y, p.batch.tokens);
  if (positions_.present()) {
    const ScratchScope scope(p.scratch_cursor());
    const TensorView looked_up = p.scratch(y.dtype(), y.shape());
    p.run(op::EmbeddingForward{.out = as_rows(looked_up), .tokens = local_positions(p), .table = p.weight(positions_),
                               .first_row = 0});
    p.run(op::Add{.out = y, .a = y, .b = looked_up});
  }
  dropout_.apply(p, y, y);
}

void Embedding::run_backward_input(LayerPass& p, ConstTensorView, TensorView d) const { dropout_.apply(p, tokens_.d_y(p), d); }

void Embedding::run_backward_weight(LayerPass& p, ConstTensorView) const {
  tokens_.backward_weight(p, p.batch.tokens);
  if (p.trains(positions_)) embedding_weight_gradient(p, positions_, as_rows(tokens_.d_y(p)), local_positions(p), 0);
}

}  // namespace trident
