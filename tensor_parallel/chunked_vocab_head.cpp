#include "tensor_parallel/chunked_vocab_head.h"

#include <algorithm>

#include "core/int_math.h"
#include "tensor_parallel/regions.h"

namespace trident {

namespace {

// Where rows are left out, those that are multiplied are as many as one of so many sizes, each of which is prepared.
constexpr std::int64_t kSizes = 16;

std::int64_t row_step(const LayerGeometry& g) { return ceil_div(g.full_rows(), kSizes); }

std::int64_t rows_to_multiply(const LayerGeometry& g, const RowOrder& order) {
  return g.leaves_rows_out ? std::min(round_up(order.count, row_step(g)), g.full_rows()) : g.full_rows();
}

// out T[n,H] = the rows of `from` that `rows` names; those that it does not have are zero.
void take_rows(Pass& p, TensorView out, ConstTensorView rows, ConstTensorView from) {
  p.run(op::EmbeddingForward{.out = out, .tokens = rows, .table = from, .first_row = 0});
}

}  // namespace

template <class F>
void ChunkedVocabHead::for_each_chunk(Pass& p, ConstTensorView inputs, const RowOrder& order, F&& f) const {
  const LayerGeometry& g = p.geometry;
  const std::int64_t all = rows_to_multiply(g, order), chunk = std::min(g.head_chunk, g.full_rows());
  const TensorView whole = p.scratch(g.compute, {chunk, columns_});
  const TensorView taken = g.leaves_rows_out ? p.scratch(inputs.dtype(), {chunk, hidden_}) : TensorView();
  const auto multiply = [&](std::int64_t first, std::int64_t n) {
    if (g.leaves_rows_out) take_rows(p, taken.rows(0, n), order.row_of.range(first, n), inputs);
    const ConstTensorView x = g.leaves_rows_out ? taken.rows(0, n) : inputs.rows(first, n);
    const TensorView logits = whole.rows(0, n);
    p.matmul(logits, x, Transpose::kNo, p.weight(table_), Transpose::kYes);
    f(first, logits, x);
  };
  if (p.plans() && g.leaves_rows_out)
    for (std::int64_t n = row_step(g); n < all; n += row_step(g)) multiply(0, n);
  // Chunks between the first and the last, which may be shorter, are nothing new to a pass that plans.
  const std::int64_t last = (all - 1) / chunk * chunk, second = p.plans() ? std::max(last, chunk) : chunk;
  for (std::int64_t first = 0; first < all; first += first == 0 ? second : chunk) multiply(first, std::min(chunk, all - first));
}

void ChunkedVocabHead::forward(Pass& p, const LossOutputs& out, ConstTensorView x, const LossRows& rows) const {
  const ScratchScope scope(p.scratch_cursor());
  const ConstTensorView inputs = as_rows(enter_region(p, x));
  const VocabParallelCrossEntropy::Rows statistics = cross_entropy_.begin(p);
  for_each_chunk(p, inputs, rows.order, [&](std::int64_t first, TensorView logits, ConstTensorView) {
    cross_entropy_.add_rows(p, statistics, logits, first, rows);
  });
  cross_entropy_.reduce_rows(p, statistics, 0, p.geometry.full_rows(), rows);
  cross_entropy_.report(p, statistics, out, rows);
}

void ChunkedVocabHead::backward(Pass& p, TensorView d_x, ConstTensorView x, const LossRows& rows, float scale,
                                Gradients wanted, const LossOutputs* out) const {
  const ScratchScope scope(p.scratch_cursor());
  const bool input = wanted != Gradients::kWeight, weight = wanted != Gradients::kInput && p.trains(table_);
  const auto statistics = input ? cross_entropy_.begin(p) : VocabParallelCrossEntropy::Rows();
  const ConstTensorView inputs = as_rows(enter_region(p, x));
  const TensorView full = input ? leave_buffer(p, d_x) : TensorView();
  const TensorView summand = input ? as_rows(full) : TensorView();
  const bool apart = input && p.geometry.leaves_rows_out;
  // As a head without chunks does it, to the bit. Halves of a backward would round otherwise than the whole.
  const bool at_once = out != nullptr && apart && wanted == Gradients::kBoth && VocabParallelCrossEntropy::forms_gradient(p);
  const TensorView by_place = apart ? p.scratch(summand.dtype(), summand.shape()) : summand;
  for_each_chunk(p, inputs, rows.order, [&](std::int64_t first, TensorView logits, ConstTensorView x_of_chunk) {
    const std::int64_t n = logits.shape()[0];
    // Ranks exchange all rows, so that their bytes do not depend on the targets.
    const std::int64_t reduced = p.geometry.leaves_rows_out ? p.geometry.full_rows() : n;
    if (at_once) {
      cross_entropy_.form_gradient(p, statistics, logits, first, rows, scale);
    } else {
      if (out != nullptr) {
        cross_entropy_.add_rows(p, statistics, logits, first, rows);
        cross_entropy_.reduce_rows(p, statistics, first, reduced, rows);
      }
      cross_entropy_.backward(p, logits, first, rows, scale);
    }
    if (input) p.matmul(by_place.rows(first, n), logits, Transpose::kNo, p.weight(table_), Transpose::kNo);
    if (!weight) return;
    p.matmul(p.grad(table_), logits, Transpose::kYes, x_of_chunk, Transpose::kNo,
             first == 0 ? p.grad_mode() : Accumulate::kYes);
  });
  if (apart) take_rows(p, summand, rows.order.place_of, by_place.rows(0, rows.order.count));
  if (out != nullptr) cross_entropy_.report(p, statistics, *out, rows);
  if (input) leave_region(p, d_x, full);
}

}  // namespace trident
