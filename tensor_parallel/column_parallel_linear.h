// y = x W^T + b with the rows of W (the columns of y) split over the tensor-parallel ranks.
//
// Several projections of one input (queries | keys and values, when they are sharded differently) share one gather of the input and
// one sum of its gradient. R = S*B rows, K input columns, C_i output columns of projection i on this rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor_parallel/layer_plan.h"
#include "tensor_parallel/regions.h"

namespace trident {

struct Projection {
  ParamId weight;                  // T[C_i, K]
  ParamId bias;                    // T[C_i], or absent
  std::int64_t output_columns = 0; // C_i
};

class ColumnParallelLinear {
 public:
  ColumnParallelLinear() = default;
  ColumnParallelLinear(std::int64_t input_columns, std::vector<Projection> projections)
      : input_columns_(input_columns), projections_(std::move(projections)) {}

  const std::vector<Projection>& projections() const { return projections_; }

  // Each takes the scratch of the call of that name, in the caller's scratch scope.
  void plan_forward(UnitPlan& plan);
  void plan_forward_gelu(UnitPlan& plan);  // and of forward
  void plan_backward_input(UnitPlan& plan);
  void plan_backward_weight(UnitPlan& plan);

  // y[i] T[R, C_i] from x T[S',B,K].
  void forward(const UnitRun& run, ConstTensorView x, std::span<const TensorView> y) const;
  // Of one projection: y T[R, C] as forward, activation T[R, C] = gelu(y).
  void forward_gelu(const UnitRun& run, ConstTensorView x, TensorView y, TensorView activation) const;
  // d_x T[S',B,K] is overwritten with the gradient of x, summed over ranks.
  void backward_input(const UnitRun& run, TensorView d_x, std::span<const TensorView> d_y) const;
  // Weight and bias gradients (grad_mode); gathers x again under sequence parallelism.
  void backward_weight(const UnitRun& run, ConstTensorView x, std::span<const TensorView> d_y) const;

 private:
  std::int64_t input_columns_ = 0;
  std::vector<Projection> projections_;
  TensorRegion region_;
  RegionTensor x_forward_, d_x_full_, x_weight_;  // [S,B,K], used under sequence parallelism
};

}  // namespace trident
