// Cross-entropy of logits whose columns (the vocabulary) are split over the tensor-parallel ranks; logits are never gathered.
//
// Per row two small reductions: the maximum, then the sum of exponentials together with the target's logit. Padding columns
// (>= vocabulary) take no part, so the loss does not depend on the number of ranks.
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

  // loss f64[1] = sum over rows with target >= 0 of the negative log-likelihood in nats, the same on every rank.
  // logits T[R, columns], targets i32[R].
  void forward(const UnitRun& run, TensorView loss, ConstTensorView logits, ConstTensorView targets) const;
  // In place: logits become scale * d loss / d logits.
  void backward(const UnitRun& run, TensorView logits, ConstTensorView targets, float scale) const;

 private:
  std::int64_t columns_ = 0, vocabulary_ = 0, first_column_ = 0;
  RegionTensor row_max_, stats_;  // f32[R], f32[2,R], saved
};

}  // namespace trident
