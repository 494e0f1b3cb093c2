#include "tensor_parallel/vocab_parallel_cross_entropy.h"

#include <cstdint>

namespace trident {

void VocabParallelCrossEntropy::forward(Pass& p, TensorView loss, ConstTensorView logits, ConstTensorView targets,
                                        TensorView token_losses) const {
  const std::int64_t rows = p.geometry.full_rows();
  const TensorView row_max = p.save(row_max_, DType::kF32, {rows}), stats = p.save(stats_, DType::kF32, {2, rows});
  p.ops.cross_entropy_max(p.stream, row_max, logits, first_column(p), vocabulary_);
  p.tensor.all_reduce(p.stream, row_max, ReduceOp::kMax);
  p.ops.cross_entropy_stats(p.stream, sum_exp(stats), target_logit(stats), logits, row_max, targets, first_column(p), vocabulary_);
  p.tensor.all_reduce(p.stream, stats, ReduceOp::kSum);
  p.ops.cross_entropy_loss(p.stream, loss, token_losses, sum_exp(stats), target_logit(stats), targets);
}

VocabParallelCrossEntropy::Rows VocabParallelCrossEntropy::begin(Pass& p) const {
  const std::int64_t rows = p.geometry.full_rows();
  Rows all{p.save(row_max_, DType::kF32, {rows}), p.save(stats_, DType::kF32, {2, rows}), {}};
  all.shard_max = p.geometry.tensor_degree > 1 ? p.scratch(DType::kF32, {rows}) : all.row_max;
  return all;
}

void VocabParallelCrossEntropy::add_rows(Pass& p, const Rows& all, ConstTensorView logits, std::int64_t first,
                                         ConstTensorView targets) const {
  const std::int64_t n = logits.shape()[0];
  const TensorView largest = all.shard_max.range(first, n);
  p.ops.cross_entropy_max(p.stream, largest, logits, first_column(p), vocabulary_);
  p.ops.cross_entropy_stats(p.stream, sum_exp(all.stats).range(first, n), target_logit(all.stats).range(first, n), logits, largest,
                            targets.range(first, n), first_column(p), vocabulary_);
}

void VocabParallelCrossEntropy::finish(Pass& p, const Rows& all, TensorView loss, ConstTensorView targets,
                                       TensorView token_losses) const {
  const TensorView sums = sum_exp(all.stats), target_logits = target_logit(all.stats);
  if (p.geometry.tensor_degree > 1) {
    p.ops.convert(p.stream, all.row_max, all.shard_max);
    p.tensor.all_reduce(p.stream, all.row_max, ReduceOp::kMax);
    p.ops.cross_entropy_rescale(p.stream, sums, target_logits, all.shard_max, all.row_max, targets, columns_, first_column(p),
                                vocabulary_);
    p.tensor.all_reduce(p.stream, all.stats, ReduceOp::kSum);
  }
  p.ops.cross_entropy_loss(p.stream, loss, token_losses, sums, target_logits, targets);
}

void VocabParallelCrossEntropy::backward(Pass& p, TensorView logits, std::int64_t first, ConstTensorView targets,
                                         float scale) const {
  const std::int64_t n = logits.shape()[0];
  p.ops.cross_entropy_backward(p.stream, logits, p[row_max_].range(first, n), sum_exp(p[stats_]).range(first, n),
                               targets.range(first, n), first_column(p), vocabulary_, scale);
}

}  // namespace trident
