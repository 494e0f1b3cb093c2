#include "tensor_parallel/vocab_parallel_cross_entropy.h"

#include <cstdint>

namespace trident {

void VocabParallelCrossEntropy::plan(UnitPlan& plan) {
  const std::int64_t rows = plan.geometry().full_rows();
  first_column_ = plan.geometry().tensor_rank * columns_;
  is_sharded_ = plan.geometry().tensor_degree > 1;
  row_max_ = plan.save(DType::kF32, {rows}, RecomputeClass::kNever);
  stats_ = plan.save(DType::kF32, {2, rows}, RecomputeClass::kNever);
}

void VocabParallelCrossEntropy::plan_rows(UnitPlan& plan) {
  shard_max_ = is_sharded_ ? plan.scratch(DType::kF32, {plan.geometry().full_rows()}) : row_max_;
}

void VocabParallelCrossEntropy::forward(const UnitRun& run, TensorView loss, ConstTensorView logits,
                                        ConstTensorView targets) const {
  const TensorView row_max = run.view(row_max_);
  run.ops.cross_entropy_max(run.stream, row_max, logits, first_column_, vocabulary_);
  run.tensor.all_reduce(run.stream, row_max, ReduceOp::kMax);
  run.ops.cross_entropy_stats(run.stream, sum_exp(run), target_logit(run), logits, row_max, targets, first_column_, vocabulary_);
  run.tensor.all_reduce(run.stream, run.view(stats_), ReduceOp::kSum);
  run.ops.cross_entropy_loss(run.stream, loss, sum_exp(run), target_logit(run), targets);
}

void VocabParallelCrossEntropy::add_rows(const UnitRun& run, ConstTensorView logits, std::int64_t first,
                                         ConstTensorView targets) const {
  const std::int64_t n = logits.shape()[0];
  const TensorView largest = run.view(shard_max_).range(first, n);
  run.ops.cross_entropy_max(run.stream, largest, logits, first_column_, vocabulary_);
  run.ops.cross_entropy_stats(run.stream, sum_exp(run).range(first, n), target_logit(run).range(first, n), logits, largest,
                              targets.range(first, n), first_column_, vocabulary_);
}

void VocabParallelCrossEntropy::finish(const UnitRun& run, TensorView loss, ConstTensorView targets) const {
  if (is_sharded_) {
    const TensorView row_max = run.view(row_max_), shard_max = run.view(shard_max_);
    run.ops.convert(run.stream, row_max, shard_max);
    run.tensor.all_reduce(run.stream, row_max, ReduceOp::kMax);
    run.ops.cross_entropy_rescale(run.stream, sum_exp(run), target_logit(run), shard_max, row_max, targets, columns_, first_column_,
                                  vocabulary_);
    run.tensor.all_reduce(run.stream, run.view(stats_), ReduceOp::kSum);
  }
  run.ops.cross_entropy_loss(run.stream, loss, sum_exp(run), target_logit(run), targets);
}

void VocabParallelCrossEntropy::backward(const UnitRun& run, TensorView logits, std::int64_t first, ConstTensorView targets,
                                         float scale) const {
  const std::int64_t n = logits.shape()[0];
  run.ops.cross_entropy_backward(run.stream, logits, run.view(row_max_).range(first, n), sum_exp(run).range(first, n),
                                 targets.range(first, n), first_column_, vocabulary_, scale);
}

}  // namespace trident
