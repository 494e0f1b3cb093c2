#include "tensor_parallel/chunked_vocab_head.h"

#include <algorithm>
#include <cstdint>

#include "tensor_parallel/regions.h"

namespace trident {

template <class F>
void ChunkedVocabHead::for_each_chunk(Pass& p, ConstTensorView inputs, F&& f) const {
  const std::int64_t all = inputs.shape()[0], chunk = std::min(p.geometry.head_chunk, all);
  const TensorView whole = p.scratch(p.geometry.compute, {chunk, columns_});
  // Chunks between the first and the last, which may be shorter, are nothing new to a pass that plans.
  const std::int64_t last = (all - 1) / chunk * chunk, second = p.plans() ? std::max(last, chunk) : chunk;
  for (std::int64_t first = 0; first < all; first += first == 0 ? second : chunk) {
    const std::int64_t n = std::min(chunk, all - first);
    const TensorView logits = whole.rows(0, n);
    p.matmul(logits, inputs.rows(first, n), Transpose::kNo, p.weight(table_), Transpose::kYes);
    f(first, logits);
  }
}

void ChunkedVocabHead::forward(Pass& p, const LossOutputs& out, ConstTensorView x, const LossRows& rows) const {
  const ScratchScope scope(p.scratch_cursor());
  const ConstTensorView inputs = as_rows(enter_region(p, x));
  const VocabParallelCrossEntropy::Rows statistics = cross_entropy_.begin(p);
  for_each_chunk(p, inputs,
                 [&](std::int64_t first, TensorView logits) { cross_entropy_.add_rows(p, statistics, logits, first, rows); });
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
  Accumulate accumulate = p.grad_mode();
  for_each_chunk(p, inputs, [&](std::int64_t first, TensorView logits) {
    const std::int64_t n = logits.shape()[0];
    if (out != nullptr) {
      cross_entropy_.add_rows(p, statistics, logits, first, rows);
      cross_entropy_.reduce_rows(p, statistics, first, n, rows);
    }
    cross_entropy_.backward(p, logits, first, rows, scale);
    if (input) p.matmul(summand.rows(first, n), logits, Transpose::kNo, p.weight(table_), Transpose::kNo);
    if (!weight) return;
    p.matmul(p.grad(table_), logits, Transpose::kYes, inputs.rows(first, n), Transpose::kNo, accumulate);
    accumulate = Accumulate::kYes;
  });
  if (out != nullptr) cross_entropy_.report(p, statistics, *out, rows);
  if (input) leave_region(p, d_x, full);
}

}  // namespace trident
