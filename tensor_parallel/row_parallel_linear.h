// y = x W^T + b with the columns of W (and of x) split over the tensor-parallel ranks: every rank's product is a summand of y.
// The bias is added once, after the sum. R = S*B rows, K input columns on this rank, H output columns.
#pragma once

#include <cstdint>

#include "tensor_parallel/layer_plan.h"
#include "tensor_parallel/regions.h"

namespace trident {

class RowParallelLinear {
 public:
  RowParallelLinear() = default;
  // weight T[H, K]; bias T[H] or absent. The bias gradient is partial over tp under sequence parallelism (each rank sums its rows).
  RowParallelLinear(std::int64_t input_columns, std::int64_t output_columns, ParamId weight, ParamId bias)
      : input_columns_(input_columns), output_columns_(output_columns), weight_(weight), bias_(bias) {}

  void plan_forward(UnitPlan& plan);
  void plan_backward_input(UnitPlan& plan);
  void plan_backward_input_gelu(UnitPlan& plan);
  void plan_backward_weight(UnitPlan& plan);

  // y T[S',B,H] from x T[R,K]; summed over ranks.
  void forward(const UnitRun& run, TensorView y, ConstTensorView x) const;
  // The caller writes the gradient of y, T[S',B,H], here; it is kept until backward_weight.
  TensorView d_y(const UnitRun& run) const { return d_y_.local(run); }
  // d_x T[R,K] overwritten. Gathers d_y under sequence parallelism.
  void backward_input(const UnitRun& run, TensorView d_x) const;
  // Where x is gelu(pre), pre T[R,K]: d_pre T[R,K] overwritten; d_x T[R,K] is scratch.
  void backward_input_gelu(const UnitRun& run, TensorView d_pre, TensorView d_x, ConstTensorView pre) const;
  // Weight and bias gradients (grad_mode), from d_y as backward_input left it.
  void backward_weight(const UnitRun& run, ConstTensorView x) const;

 private:
  std::int64_t input_columns_ = 0, output_columns_ = 0;
  ParamId weight_, bias_;
  bool sums_ranks_ = false;    // y is a sum over several ranks: the bias comes after it
  bool partial_bias_ = false;  // each rank sums the bias gradient over its own rows
  TensorRegion region_;
  RegionTensor y_full_;
  KeptGradient d_y_;
};

}  // namespace trident
