// Cross-entropy of logits whose columns (the vocabulary) are split over the tensor-parallel ranks; logits are never gathered.
//
// Per row two small reductions: the maximum, then the sum of exponentials together with the target's logit. Padding columns
// (>= vocabulary) take no part, so the loss does not depend on the number of ranks.
//
// Logits are read once, all of them or a few rows at a time: each rank sums beside its own maximum, and when it has seen all rows
// the two reductions are made once, its sums rescaled between them (Milakov and Gimelshein 2018, arXiv 1805.02867, over ranks).
// With one rank nothing is to be reduced, so that forward can also leave the gradient, which is then never a reading of its own.
#pragma once

#include <cstdint>
#include <optional>

#include "tensor_parallel/pass.h"

namespace trident {

// With LayerGeometry::leaves_rows_out: the order in which a loss takes rows, those with counted targets first. The first `count`
// places have all of these, and are at least one.
struct RowOrder {
  ConstTensorView row_of;    // i32[R]: the row of each place
  ConstTensorView place_of;  // i32[R]: the place of each row; -1: not among the first `count`
  std::int64_t count = 0;
};

// The rows of a loss: targets i32[R], negative: not counted; weights f32[R] of their losses and gradients, or a view of nothing: 1.
struct LossRows {
  // Targets alone are rows, too.
  LossRows(ConstTensorView targets_of_rows, ConstTensorView weights_of_rows = {}, RowOrder order_of_rows = {})
      : targets(targets_of_rows), weights(weights_of_rows), order(order_of_rows) {}
  LossRows range(std::int64_t first, std::int64_t n) const {
    return {targets.range(first, n), weights.data() == nullptr ? weights : weights.range(first, n)};
  }
  ConstTensorView targets, weights;  // and all that is of rows: by places, where there is an order
  RowOrder order;
};

// Where a forward leaves what it computes; the two of rows may be views of nothing.
struct LossOutputs {
  TensorView loss;          // f64[1]: sum over rows with target >= 0 of weight * the negative log-likelihood in nats
  TensorView token_losses;  // f32[R]: of each such row alone, without its weight; 0 of others
  // f32[R]: each target's logit less the row's largest. 0: the target is the arg max, the first of several.
  TensorView target_logits;  // by places, as token_losses; undefined behind those that are multiplied
};

class VocabParallelCrossEntropy {
 public:
  VocabParallelCrossEntropy() = default;
  // This rank holds `columns` = padded vocabulary / t of the `vocabulary` columns. Over 0, `softcap` bounds the logits. `last_use`:
  // of backward(), which reads the rows' statistics; kW where backward_weight makes logits again.
  VocabParallelCrossEntropy(std::int64_t columns, std::int64_t vocabulary, float softcap, LastUse last_use = LastUse::kB)
      : columns_(columns), vocabulary_(vocabulary), softcap_(softcap) {
    row_max_.last_use = stats_.last_use = last_use;
  }

  // `out` is the same on every rank. logits T[R, columns]. With `scale`, where forms_gradient(), logits become in place what
  // backward() makes of them.
  void forward(Pass& p, const LossOutputs& out, TensorView logits, const LossRows& rows, std::optional<float> scale = {}) const;
  static bool forms_gradient(const Pass& p) { return p.geometry.tensor_degree == 1; }
  // The same of logits T[n, columns], rows first .. first + n - 1: for all rows once, in any pieces, between begin() and report();
  // begin() takes scratch in the caller's scope. Rows that were added are reduced over ranks, in any pieces, before backward()
  // takes them.
  struct Rows {
    TensorView row_max, stats;
    TensorView shard_max;  // f32[R]: the maximum of this rank's columns. With one rank that is row_max itself.
  };
  Rows begin(Pass& p) const;
  void add_rows(Pass& p, const Rows& all, ConstTensorView logits, std::int64_t first, const LossRows& rows) const;
  // add_rows() and backward() in one reading, where forms_gradient().
  void form_gradient(Pass& p, const Rows& all, TensorView logits, std::int64_t first, const LossRows& rows, float scale) const;
  void reduce_rows(Pass& p, const Rows& all, std::int64_t first, std::int64_t n, const LossRows& rows) const;
  void report(Pass& p, const Rows& all, const LossOutputs& out, const LossRows& rows) const;

  // In place: logits T[n, columns], rows first .. first + n - 1, become scale * d loss / d logits. `rows` are all R.
  void backward(Pass& p, TensorView logits, std::int64_t first, const LossRows& rows, float scale) const;

 private:
  static TensorView sum_exp(TensorView stats) { return stats.rows(0, 1).flat(); }
  static TensorView target_logit(TensorView stats) { return stats.rows(1, 1).flat(); }
  std::int64_t first_column(const Pass& p) const { return p.geometry.tensor_rank * columns_; }

  std::int64_t columns_ = 0, vocabulary_ = 0;
  float softcap_ = 0;
  Saved row_max_{"the rows' largest logits", ActivationKind::kLoss, LastUse::kB, RecomputeClass::kNever};  // f32[R]
  // f32[2,R]
  Saved stats_{"the rows' sums of exponentials and target logits", ActivationKind::kLoss, LastUse::kB, RecomputeClass::kNever};
};

}  // namespace trident
