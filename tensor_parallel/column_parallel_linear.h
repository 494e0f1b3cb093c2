// y = x W^T + b with the rows of W (the columns of y) split over the tensor-parallel ranks.
//
// Several projections of one input (queries | keys and values, when they are sharded differently) share one gather of the input and
// one sum of its gradient. R = S*B rows, K input columns, C_i output columns of projection i on this rank. Each call has a scratch
// scope of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tensor_parallel/linear_adapter.h"
#include "tensor_parallel/pass.h"

namespace trident {

struct Projection {
  ParamId weight;                  // T[C_i, K]
  ParamId bias;                    // T[C_i], or absent
  std::int64_t output_columns = 0; // C_i
};

class ColumnParallelLinear {
 public:
  ColumnParallelLinear() = default;
  // Copies, for want of moves, leave adapters where they are when a layer is declared again: passes know their tensors by address.
  ColumnParallelLinear(const ColumnParallelLinear&) = default;
  ColumnParallelLinear& operator=(const ColumnParallelLinear&) = default;
  explicit ColumnParallelLinear(std::vector<Projection> projections, std::vector<LinearAdapter> adapters = {})
      : projections_(std::move(projections)), adapters_(std::move(adapters)) {}

  const std::vector<Projection>& projections() const { return projections_; }
  // Whether backward_weight does anything.
  bool trains(const Pass& p) const {
    return !adapters_.empty() ||
           std::ranges::any_of(projections_, [&](const Projection& of) { return p.trains(of.weight) || p.trains(of.bias); });
  }

  void derive(Pass& p) const {
    for (const LinearAdapter& adapter : adapters_) adapter.derive(p);
  }
  // y[i] T[R, C_i] from x T[S',B,K]. With `gelu` T[R, C], of one projection: also gelu = gelu(y).
  void forward(Pass& p, ConstTensorView x, std::span<const TensorView> y, std::optional<TensorView> gelu = {}) const;
  // d_x T[S',B,K] is overwritten with the gradient of x, summed over ranks.
  void backward_input(Pass& p, TensorView d_x, std::span<const TensorView> d_y) const;
  // Weight, bias and adapter gradients (grad_mode); gathers x again under sequence parallelism.
  void backward_weight(Pass& p, ConstTensorView x, std::span<const TensorView> d_y) const;

 private:
  std::vector<Projection> projections_;
  std::vector<LinearAdapter> adapters_;
};

}  // namespace trident
