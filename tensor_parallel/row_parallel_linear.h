// y = x W^T + b with the columns of W (and of x) split over the tensor-parallel ranks: every rank's product is a summand of y.
// The bias is added once, after the sum, by the caller, who has more to add. R = S*B rows, K input columns on this rank, H output
// columns. Each call has a scratch scope of its own.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tensor_parallel/linear_adapter.h"
#include "tensor_parallel/pass.h"
#include "tensor_parallel/regions.h"

namespace trident {

class RowParallelLinear {
 public:
  RowParallelLinear() = default;
  // Copies, for want of moves, leave adapters where they are when a layer is declared again: passes know their tensors by address.
  RowParallelLinear(const RowParallelLinear&) = default;
  RowParallelLinear& operator=(const RowParallelLinear&) = default;
  // weight T[H, K]; bias T[H] or absent. The bias gradient is partial over tp under sequence parallelism (each rank sums its rows).
  RowParallelLinear(std::int64_t output_columns, ParamId weight, ParamId bias, std::vector<LinearAdapter> adapters = {})
      : output_columns_(output_columns), weight_(weight), bias_(bias), adapters_(std::move(adapters)) {}

  void derive(Pass& p) const {
    for (const LinearAdapter& adapter : adapters_) adapter.derive(p);
  }
  // y T[S',B,H] from x T[R,K]; summed over ranks. Returns the bias T[H] that y still lacks, or a view of nothing. A `residual` like
  // y is added where that is one kernel with the product, and becomes a view of nothing then.
  ConstTensorView forward(Pass& p, TensorView y, ConstTensorView x, ConstTensorView* residual = nullptr) const;
  // Makes what forward saves of adapters again (full recompute).
  void recompute(Pass& p, ConstTensorView x) const;
  // The caller writes the gradient of y, T[S',B,H], here; it is kept until backward_weight.
  TensorView d_y(Pass& p) const { return d_y_.local(p, output_columns_); }
  // d_x T[R,K] overwritten. Gathers d_y under sequence parallelism.
  void backward_input(Pass& p, TensorView d_x) const;
  // Where x is gelu(pre), pre T[R,K]: d_pre and x, T[R,K], overwritten.
  void backward_input_through_gelu(Pass& p, TensorView d_pre, TensorView x, ConstTensorView pre) const;
  // Whether backward reads what recompute() makes again (DoRA).
  bool scales() const { return !adapters_.empty() && adapters_.front().scales(); }
  // Whether backward_weight does anything.
  bool trains(const Pass& p) const { return !adapters_.empty() || p.trains(weight_) || p.trains(bias_); }
  // Weight, bias and adapter gradients (grad_mode), from d_y as backward_input left it.
  void backward_weight(Pass& p, ConstTensorView x) const;

 private:
  MatmulOperands input_gradient(Pass& p, TensorView d_x) const;
  TensorView d_y_rows(Pass& p) const { return as_rows(d_y_.full(p)); }

  std::int64_t output_columns_ = 0;
  ParamId weight_, bias_;
  std::vector<LinearAdapter> adapters_;  // one, or none
  KeptGradient d_y_;
};

}  // namespace trident
