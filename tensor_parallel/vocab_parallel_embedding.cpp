#include "tensor_parallel/vocab_parallel_embedding.h"

#include <cstdint>

namespace trident {

void VocabParallelEmbedding::plan_forward(UnitPlan& plan) {
  region_ = TensorRegion(plan.geometry());
  first_row_ = plan.geometry().tensor_rank * rows_;
  y_full_ = region_.plan_full(plan, hidden_);
}

void VocabParallelEmbedding::plan_backward_input(UnitPlan& plan) { d_y_ = KeptGradient(plan, hidden_); }

void VocabParallelEmbedding::forward(const UnitRun& run, TensorView y, ConstTensorView tokens) const {
  const TensorView full = run.view(y_full_);
  run.ops.embedding_forward(run.stream, as_rows(region_.leave_buffer(y, full)), tokens, run.weight(table_), first_row_);
  region_.leave(run, y, full);
}

void VocabParallelEmbedding::backward_weight(const UnitRun& run, ConstTensorView tokens) const {
  embedding_weight_gradient(run, table_, as_rows(d_y_.gather(run)), tokens, first_row_);
}

void embedding_weight_gradient(const UnitRun& run, ParamId table, ConstTensorView d_out, ConstTensorView tokens,
                               std::int64_t first_row) {
  const TensorView gradient = run.grad(table);
  if (run.grad_mode() == Accumulate::kNo) run.ops.fill_zero(run.stream, gradient);
  run.ops.embedding_backward(run.stream, gradient, d_out, tokens, first_row);
}

}  // namespace trident
