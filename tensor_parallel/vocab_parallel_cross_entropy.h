// Cross-entropy of logits whose columns (the vocabulary) are split over the tensor-parallel ranks; logits are never gathered.
//
// Per row two small reductions: the maximum, then the sum of exponentials together with the target's logit. Padding columns
// (>= vocabulary) take no part, so the loss does not depend on the number of ranks.
//
// Logits may also come a few rows at a time. Each rank then sums beside its own maximum, and when it has seen all rows the same
// two reductions are made once, its sums rescaled between them (Milakov and Gimelshein 2018, arXiv 1805.02867, over ranks).
#pragma once

#include <cstdint>

#include "tensor_parallel/layer_plan.h"

namespace trident {

class VocabParallelCrossEntropy {
 public:
  VocabParallelCrossEntropy() = default;
  // This rank holds `columns` = padded vocabulary / t of the `vocabulary` columns.
  VocabParallelCrossEntropy(std::int64_t columns, std::int64_t vocabulary) : columns_(columns), vocabulary_(vocabulary) {}

  void plan(UnitPlan& plan);
  // Scratch between add_rows and finish, in the caller's scope.
  void plan_rows(UnitPlan& plan);

  // loss f64[1] = sum over rows with target >= 0 of the negative log-likelihood in nats, the same on every rank.
  // logits T[R, columns], targets i32[R].
  void forward(const UnitRun& run, TensorView loss, ConstTensorView logits, ConstTensorView targets) const;
  // The same of logits T[n, columns], rows first .. first + n - 1: for all rows once, in any pieces; then finish().
  void add_rows(const UnitRun& run, ConstTensorView logits, std::int64_t first, ConstTensorView targets) const;
  void finish(const UnitRun& run, TensorView loss, ConstTensorView targets) const;

  // In place: logits T[n, columns], rows first .. first + n - 1, become scale * d loss / d logits. `targets` are all i32[R].
  void backward(const UnitRun& run, TensorView logits, std::int64_t first, ConstTensorView targets, float scale) const;

 private:
  TensorView sum_exp(const UnitRun& run) const { return run.view(stats_).rows(0, 1).flat(); }
  TensorView target_logit(const UnitRun& run) const { return run.view(stats_).rows(1, 1).flat(); }

  std::int64_t columns_ = 0, vocabulary_ = 0, first_column_ = 0;
  RegionTensor row_max_, stats_;  // f32[R], f32[2,R] (sums of exponentials, target logits), saved
  // f32[R]: the maximum of this rank's columns. With one rank that is row_max_ itself.
  RegionTensor shard_max_;
  bool is_sharded_ = false;
};

}  // namespace trident
