#include "tensor_parallel/vocab_parallel_cross_entropy.h"

namespace trident {

void VocabParallelCrossEntropy::plan(UnitPlan& plan) {
  const std::int64_t rows = plan.geometry().full_rows();
  first_column_ = plan.geometry().tensor_rank * columns_;
  row_max_ = plan.save(DType::kF32, {rows}, RecomputeClass::kNever);
  stats_ = plan.save(DType::kF32, {2, rows}, RecomputeClass::kNever);
}

void VocabParallelCrossEntropy::forward(const UnitRun& run, TensorView loss, ConstTensorView logits,
                                        ConstTensorView targets) const {
  const TensorView row_max = run.view(row_max_), stats = run.view(stats_);
  run.ops.cross_entropy_max(run.stream, row_max, logits, first_column_, vocabulary_);
  run.tensor.all_reduce(run.stream, row_max, ReduceOp::kMax);
  run.ops.cross_entropy_stats(run.stream, stats, logits, row_max, targets, first_column_, vocabulary_);
  run.tensor.all_reduce(run.stream, stats, ReduceOp::kSum);
  run.ops.cross_entropy_loss(run.stream, loss, stats, targets);
}

void VocabParallelCrossEntropy::backward(const UnitRun& run, TensorView logits, ConstTensorView targets, float scale) const {
  run.ops.cross_entropy_backward(run.stream, logits, run.view(row_max_), run.view(stats_), targets, first_column_, vocabulary_,
                                 scale);
}

}  // namespace trident
