#include "tensor_parallel/vocab_parallel_cross_entropy.h"

namespace trident {

void VocabParallelCrossEntropy::forward(Pass& p, const LossOutputs& out, TensorView logits, const LossRows& rows,
                                        std::optional<float> scale) const {
  const ScratchScope scope(p.scratch_cursor());
  const Rows all = begin(p);
  if (scale && forms_gradient(p))
    form_gradient(p, all, logits, 0, rows, *scale);
  else
    add_rows(p, all, logits, 0, rows);
  reduce_rows(p, all, 0, p.geometry.full_rows(), rows);
  report(p, all, out, rows);
}

VocabParallelCrossEntropy::Rows VocabParallelCrossEntropy::begin(Pass& p) const {
  const std::int64_t rows = p.geometry.full_rows();
  Rows all{p.save(row_max_, DType::kF32, {rows}), p.save(stats_, DType::kF32, {2, rows}), {}};
  all.shard_max = p.geometry.tensor_degree > 1 ? p.scratch(DType::kF32, {rows}) : all.row_max;
  return all;
}

void VocabParallelCrossEntropy::add_rows(Pass& p, const Rows& all, ConstTensorView logits, std::int64_t first,
                                         const LossRows& rows) const {
  const std::int64_t n = logits.shape()[0];
  p.run(op::CrossEntropyStats{.row_max = all.shard_max.range(first, n), .sum_exp = sum_exp(all.stats).range(first, n),
                              .target_logit = target_logit(all.stats).range(first, n), .logits = logits,
                              .targets = rows.targets.range(first, n), .first_column = first_column(p), .vocabulary = vocabulary_,
                              .softcap = softcap_});
}

void VocabParallelCrossEntropy::form_gradient(Pass& p, const Rows& all, TensorView logits, std::int64_t first, const LossRows& rows,
                                              float scale) const {
  const std::int64_t n = logits.shape()[0];
  const LossRows part = rows.range(first, n);
  p.run(op::CrossEntropyGradient{.sum_exp = sum_exp(all.stats).range(first, n),
                                 .target_logit = target_logit(all.stats).range(first, n), .logits = logits,
                                 .targets = part.targets, .vocabulary = vocabulary_, .scale = scale, .softcap = softcap_,
                                 .weights = part.weights});
}

void VocabParallelCrossEntropy::reduce_rows(Pass& p, const Rows& all, std::int64_t first, std::int64_t n,
                                            const LossRows& rows) const {
  if (p.geometry.tensor_degree == 1) return;
  const TensorView row_max = all.row_max.range(first, n), shard_max = all.shard_max.range(first, n);
  const TensorView sums = sum_exp(all.stats).range(first, n), target_logits = target_logit(all.stats).range(first, n);
  p.run(op::Convert{.out = row_max, .x = shard_max});
  p.tensor.all_reduce(p.stream, row_max, ReduceOp::kMax);
  p.run(op::CrossEntropyRescale{.sum_exp = sums, .target_logit = target_logits, .shard_max = shard_max, .row_max = row_max,
                                .targets = rows.targets.range(first, n), .columns = columns_, .first_column = first_column(p),
                                .vocabulary = vocabulary_});
  if (n == p.geometry.full_rows()) return p.tensor.all_reduce(p.stream, all.stats, ReduceOp::kSum);
  p.tensor.all_reduce(p.stream, sums, ReduceOp::kSum);
  p.tensor.all_reduce(p.stream, target_logits, ReduceOp::kSum);
}

void VocabParallelCrossEntropy::report(Pass& p, const Rows& all, const LossOutputs& out, const LossRows& rows) const {
  const TensorView sums = sum_exp(all.stats), target_logits = target_logit(all.stats);
  p.run(op::CrossEntropyLoss{.loss = out.loss, .row_losses = out.token_losses, .sum_exp = sums, .target_logit = target_logits,
                             .targets = rows.targets, .weights = rows.weights});
  if (out.target_logits.data() != nullptr) p.run(op::Convert{.out = out.target_logits, .x = target_logits});
}

void VocabParallelCrossEntropy::backward(Pass& p, TensorView logits, std::int64_t first, const LossRows& rows,
                                         float scale) const {
  const std::int64_t n = logits.shape()[0];
  const LossRows part = rows.range(first, n);
  p.run(op::CrossEntropyBackward{.logits = logits, .row_max = p[row_max_].range(first, n),
                                 .sum_exp = sum_exp(p[stats_]).range(first, n), .targets = part.targets,
                                 .first_column = first_column(p), .vocabulary = vocabulary_, .scale = scale,
                                 .softcap = softcap_, .weights = part.weights});
}

}  // namespace trident
