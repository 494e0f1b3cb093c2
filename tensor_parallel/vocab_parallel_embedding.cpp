#include "tensor_parallel/vocab_parallel_embedding.h"

namespace trident {

void VocabParallelEmbedding::forward(Pass& p, TensorView y, ConstTensorView tokens) const {
  const ScratchScope scope(p.scratch_cursor());
  const TensorView full = leave_buffer(p, y);
  p.run(op::EmbeddingForward{.out = as_rows(full), .tokens = tokens, .table = p.weight(table_), .first_row = first_row(p)});
  leave_region(p, y, full);
}

void VocabParallelEmbedding::backward_weight(Pass& p, ConstTensorView tokens) const {
  if (!p.trains(table_)) return;
  embedding_weight_gradient(p, table_, as_rows(d_y_.gather(p)), tokens, first_row(p));
}

void embedding_weight_gradient(Pass& p, ParamId table, ConstTensorView d_out, ConstTensorView tokens, std::int64_t first_row) {
  const TensorView gradient = p.grad(table);
  if (p.grad_mode() == Accumulate::kNo) p.run(op::FillZero{.out = gradient});
  p.run(op::EmbeddingBackward{.d_table = gradient, .d_out = d_out, .tokens = tokens, .first_row = first_row});
}

}  // namespace trident
