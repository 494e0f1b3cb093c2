// Token embedding with the rows of the table split over the tensor-parallel ranks: tokens of other ranks' rows look up zero, the
// sum over ranks is the embedding. No padding row is ever looked up (tokens are below the vocabulary size).
#pragma once

#include <cstdint>

#include "tensor_parallel/pass.h"
#include "tensor_parallel/regions.h"

namespace trident {

class VocabParallelEmbedding {
 public:
  VocabParallelEmbedding() = default;
  // table T[rows, H], rows = padded vocabulary / t.
  VocabParallelEmbedding(std::int64_t rows, std::int64_t hidden, ParamId table) : rows_(rows), hidden_(hidden), table_(table) {}

  // y T[S',B,H] from tokens i32[S*B] of the whole sequence.
  void forward(Pass& p, TensorView y, ConstTensorView tokens) const;
  // The caller writes the gradient of y, T[S',B,H], here; it is kept until backward_weight.
  TensorView d_y(Pass& p) const { return d_y_.local(p, hidden_); }
  // The table's gradient (grad_mode). Gathers d_y under sequence parallelism.
  void backward_weight(Pass& p, ConstTensorView tokens) const;

 private:
  std::int64_t first_row(const Pass& p) const { return p.geometry.tensor_rank * rows_; }

  std::int64_t rows_ = 0, hidden_ = 0;
  ParamId table_;
  KeptGradient d_y_;
};

// Adds the gradient of a lookup to the table's gradient under the unit's grad_mode (the operation itself only adds).
void embedding_weight_gradient(Pass& p, ParamId table, ConstTensorView d_out, ConstTensorView tokens, std::int64_t first_row);

}  // namespace trident
