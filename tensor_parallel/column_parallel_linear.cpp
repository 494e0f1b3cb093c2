#include "tensor_parallel/column_parallel_linear.h"

#include "tensor_parallel/regions.h"

namespace trident {

void ColumnParallelLinear::forward(Pass& p, ConstTensorView x, std::span<const TensorView> y,
                                   std::optional<TensorView> gelu) const {
  const ScratchScope scope(p.scratch_cursor());
  const ConstTensorView rows = as_rows(enter_region(p, x));
  const bool scales = !adapters_.empty() && adapters_.front().scales();
  const bool joins = adapters_.size() == 1 && !scales;
  if (joins) adapters_.front().make_inner(p, rows);
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const Projection& projection = projections_[i];
    const bool bias = projection.bias.present();
    const MatmulOperands product = p.product(y[i], rows, Transpose::kNo, p.weight(projection.weight), Transpose::kYes);
    const auto alone = [&] {
      if (bias && gelu && adapters_.empty())
        p.ops.matmul_bias_gelu(p.stream, product, p.weight(projection.bias), *gelu);
      else if (bias && !scales)
        p.ops.matmul_bias(p.stream, product, p.weight(projection.bias));
      else
        p.matmul(product);
    };
    if (!joins)
      alone();
    else if (adapters_.front().multiply(p, product, i, {}, alone) && bias)
      p.run(op::AddBias{.x = y[i], .bias = p.weight(projection.bias)});
    if (!bias && gelu && adapters_.empty()) p.run(op::GeluForward{.out = *gelu, .x = y[i]});
  }
  if (!joins)
    for (const LinearAdapter& adapter : adapters_) adapter.forward(p, rows, y);
  for (std::size_t i = 0; i < projections_.size() && scales; ++i)
    if (const ParamId bias = projections_[i].bias; bias.present()) p.run(op::AddBias{.x = y[i], .bias = p.weight(bias)});
  if (gelu && !adapters_.empty()) p.run(op::GeluForward{.out = *gelu, .x = y.front()});
}

void ColumnParallelLinear::backward_input(Pass& p, TensorView d_x, std::span<const TensorView> d_y) const {
  const ScratchScope scope(p.scratch_cursor());
  const TensorView full = leave_buffer(p, d_x), summand = as_rows(full);
  for (const LinearAdapter& adapter : adapters_) adapter.begin_backward(p, d_y);
  if (adapters_.size() == 1 && projections_.size() == 1) {
    const ConstTensorView weight = p.weight(projections_.front().weight);
    adapters_.front().backward_input(p, p.product(summand, d_y.front(), Transpose::kNo, weight, Transpose::kNo), d_y);
    return leave_region(p, d_x, full);
  }
  Accumulate accumulate = Accumulate::kNo;
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    p.matmul(summand, d_y[i], Transpose::kNo, p.weight(projections_[i].weight), Transpose::kNo, accumulate);
    accumulate = Accumulate::kYes;
  }
  for (const LinearAdapter& adapter : adapters_) adapter.backward_input(p, summand, d_y);
  leave_region(p, d_x, full);
}

void ColumnParallelLinear::backward_weight(Pass& p, ConstTensorView x, std::span<const TensorView> d_y) const {
  if (!trains(p)) return;
  const ScratchScope scope(p.scratch_cursor());
  const ConstTensorView rows = as_rows(enter_region(p, x));
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const Projection& projection = projections_[i];
    if (projection.bias.present())
      p.weight_and_bias_gradient(projection.weight, projection.bias, d_y[i], rows);
    else
      p.weight_gradient(projection.weight, d_y[i], rows);
  }
  for (const LinearAdapter& adapter : adapters_) adapter.backward_weight(p, rows, d_y);
}

}  // namespace trident
