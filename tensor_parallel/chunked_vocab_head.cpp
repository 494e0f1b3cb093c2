#include "tensor_parallel/chunked_vocab_head.h"

#include <algorithm>
#include <cstdint>

namespace trident {

void ChunkedVocabHead::plan(UnitPlan& plan, std::int64_t chunk) {
  const std::int64_t rows = plan.geometry().full_rows();
  chunk_ = std::min(chunk, rows);
  region_ = TensorRegion(plan.geometry());
  cross_entropy_.plan(plan);
  for (const std::int64_t n : {chunk_, rows % chunk_}) {
    if (n == 0) continue;  // the last chunk is a whole one
    plan.matmul(n, columns_, hidden_, Transpose::kNo, Transpose::kYes);
    plan.matmul(n, hidden_, columns_, Transpose::kNo, Transpose::kNo);
    plan.weight_gradient(columns_, hidden_, n);
  }
}

void ChunkedVocabHead::plan_forward(UnitPlan& plan) {
  x_forward_ = region_.plan_full(plan, hidden_);
  logits_forward_ = plan.scratch(plan.geometry().compute, {chunk_, columns_});
  cross_entropy_.plan_rows(plan);
}

void ChunkedVocabHead::plan_backward(UnitPlan& plan) {
  x_backward_ = region_.plan_full(plan, hidden_);
  d_x_full_ = region_.plan_full(plan, hidden_);
  logits_backward_ = plan.scratch(plan.geometry().compute, {chunk_, columns_});
}

template <class F>
void ChunkedVocabHead::for_each_chunk(const UnitRun& run, const RegionTensor& scratch, ConstTensorView rows, F&& f) const {
  const std::int64_t all = rows.shape()[0];
  for (std::int64_t first = 0; first < all; first += chunk_) {
    const std::int64_t n = std::min(chunk_, all - first);
    const TensorView logits = run.view(scratch).rows(0, n);
    run.matmul(logits, rows.rows(first, n), Transpose::kNo, run.weight(table_), Transpose::kYes);
    f(first, logits);
  }
}

void ChunkedVocabHead::forward(const UnitRun& run, TensorView loss, ConstTensorView x, ConstTensorView targets) const {
  const ConstTensorView rows = as_rows(region_.enter(run, x, run.view(x_forward_)));
  for_each_chunk(run, logits_forward_, rows, [&](std::int64_t first, TensorView logits) {
    cross_entropy_.add_rows(run, logits, first, targets);
  });
  cross_entropy_.finish(run, loss, targets);
}

void ChunkedVocabHead::backward(const UnitRun& run, TensorView d_x, ConstTensorView x, ConstTensorView targets, float scale,
                                Gradients wanted) const {
  const bool input = wanted != Gradients::kWeight, weight = wanted != Gradients::kInput;
  const ConstTensorView rows = as_rows(region_.enter(run, x, run.view(x_backward_)));
  const TensorView full = run.view(d_x_full_);
  const TensorView summand = input ? as_rows(region_.leave_buffer(d_x, full)) : TensorView();
  Accumulate accumulate = run.grad_mode();
  for_each_chunk(run, logits_backward_, rows, [&](std::int64_t first, TensorView logits) {
    const std::int64_t n = logits.shape()[0];
    cross_entropy_.backward(run, logits, first, targets, scale);
    if (input) run.matmul(summand.rows(first, n), logits, Transpose::kNo, run.weight(table_), Transpose::kNo);
    if (!weight) return;
    run.matmul(run.grad(table_), logits, Transpose::kYes, rows.rows(first, n), Transpose::kNo, accumulate);
    accumulate = Accumulate::kYes;
  });
  if (input) region_.leave(run, d_x, full);
}

}  // namespace trident
