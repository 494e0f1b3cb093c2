#include "model/embedding.h"

#include "model/declare.h"
#include "model/param_names.h"

namespace trident {

void Embedding::declare(ParamList& list) {
  const EndNames names = end_names(config_);
  const int tensor_degree = list.layout().degree;
  const ParamId table = declare_vocabulary(list, config_, TiedEnd::kLookup, names.embedding, names.embedding);
  tokens_ = VocabParallelEmbedding(padded_vocabulary(config_, tensor_degree) / tensor_degree, config_.hidden, table);
  if (config_.position == PositionKind::kLearned)
    positions_ = declare_table(list, names.positions, config_.max_positions, config_.hidden, static_cast<float>(config_.init_std));
}

void Embedding::plan(UnitPlan& plan) {
  declare(plan.param_list());
  const LayerGeometry& g = plan.geometry();
  dropout_.plan(plan);
  first_row_ = g.row_offset();
  local_rows_ = g.local_rows();
  {
    const ScratchScope scope(plan.scratch_plan());
    tokens_.plan_forward(plan);
  }
  {
    const ScratchScope scope(plan.scratch_plan());
    if (positions_.present()) looked_up_ = plan.scratch(g.compute, g.activation_shape(config_.hidden));
  }
  tokens_.plan_backward_input(plan);
}

void Embedding::forward(const LayerRun& run, ConstTensorView, TensorView y) const {
  tokens_.forward(run, y, run.batch.tokens);
  if (positions_.present()) {
    const TensorView looked_up = run.view(looked_up_);
    run.ops.embedding_forward(run.stream, as_rows(looked_up), local_positions(run), run.weight(positions_), 0);
    run.ops.add(run.stream, y, y, looked_up);
  }
  dropout_.apply(run, y, y);
}

void Embedding::backward_input(const LayerRun& run, ConstTensorView, TensorView d) const {
  dropout_.apply(run, tokens_.d_y(run), d);
}

void Embedding::backward_weight(const LayerRun& run, ConstTensorView) const {
  tokens_.backward_weight(run, run.batch.tokens);
  if (positions_.present()) embedding_weight_gradient(run, positions_, as_rows(tokens_.d_y(run)), local_positions(run), 0);
}

}  // namespace trident
