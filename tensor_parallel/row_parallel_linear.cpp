#include "tensor_parallel/row_parallel_linear.h"

#include <span>

namespace trident {

ConstTensorView RowParallelLinear::forward(Pass& p, TensorView y, ConstTensorView x, ConstTensorView* residual) const {
  const ScratchScope scope(p.scratch_cursor());
  const bool sums_ranks = p.geometry.tensor_degree > 1;  // the bias comes after the sum
  const TensorView full = leave_buffer(p, y);
  const MatmulOperands product = p.product(as_rows(full), x, Transpose::kNo, p.weight(weight_), Transpose::kYes);
  ConstTensorView bias = bias_.present() ? p.weight(bias_) : ConstTensorView();
  const auto alone = [&] {
    if (bias_.present() && !sums_ranks && !scales() &&
        p.ops.try_fused(p.stream, {.epilogue = Epilogue::kBias, .product = product, .bias = bias}))
      bias = {};
    else
      p.matmul(product);
  };
  const bool joins = residual != nullptr && !sums_ranks && !bias_.present() && !scales();
  const ConstTensorView summand = joins ? as_rows(*residual) : ConstTensorView();
  const TensorView rows = as_rows(full);
  bool joined = false;
  if (!adapters_.empty() && !scales()) {
    adapters_.front().make_inner(p, x);
    joined = adapters_.front().multiply(p, product, 0, summand, alone);
  } else {
    joined = joins && p.ops.try_fused(p.stream, {.epilogue = Epilogue::kSummands, .product = product, .residual = summand});
    if (!joined) alone();
    for (const LinearAdapter& adapter : adapters_) adapter.forward(p, x, std::span(&rows, 1));
  }
  if (joins && joined) *residual = {};
  leave_region(p, y, full);
  return bias;
}

void RowParallelLinear::recompute(Pass& p, ConstTensorView x) const {
  const ScratchScope scope(p.scratch_cursor());
  const TensorView rows = p.scratch(x.dtype(), {x.shape()[0], output_columns_});
  p.matmul(rows, x, Transpose::kNo, p.weight(weight_), Transpose::kYes);
  for (const LinearAdapter& adapter : adapters_) adapter.forward(p, x, std::span(&rows, 1));
}

MatmulOperands RowParallelLinear::input_gradient(Pass& p, TensorView d_x) const {
  return p.product(d_x, as_rows(d_y_.gather(p)), Transpose::kNo, p.weight(weight_), Transpose::kNo);
}

void RowParallelLinear::backward_input(Pass& p, TensorView d_x) const {
  const MatmulOperands product = input_gradient(p, d_x);
  const TensorView d_y = d_y_rows(p);
  for (const LinearAdapter& adapter : adapters_) adapter.begin_backward(p, std::span(&d_y, 1));
  if (adapters_.empty()) return p.matmul(product);
  adapters_.front().backward_input(p, product, std::span(&d_y, 1));
}

void RowParallelLinear::backward_input_through_gelu(Pass& p, TensorView d_pre, TensorView x, ConstTensorView pre) const {
  if (!adapters_.empty()) {
    backward_input(p, x);
    return p.run(op::GeluBackward{.d_x = d_pre, .d_out = x, .x = pre});
  }
  p.ops.matmul_gelu_backward(p.stream, input_gradient(p, x), pre, d_pre);
}

void RowParallelLinear::backward_weight(Pass& p, ConstTensorView x) const {
  if (!trains(p)) return;
  const bool partial_bias = p.geometry.shards_sequence();  // each rank sums the bias gradient over its own rows
  const TensorView d_y = d_y_rows(p);
  for (const LinearAdapter& adapter : adapters_) adapter.backward_weight(p, x, std::span(&d_y, 1));
  if (bias_.present() && !partial_bias) return p.weight_and_bias_gradient(weight_, bias_, d_y, x);
  if (p.trains(bias_)) p.run(op::SumRows{.out = p.grad(bias_), .x = as_rows(d_y_.local(p)), .accumulate = p.grad_mode()});
  p.weight_gradient(weight_, d_y, x);
}

}  // namespace trident
