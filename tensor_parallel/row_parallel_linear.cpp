#include "tensor_parallel/row_parallel_linear.h"

namespace trident {

void RowParallelLinear::plan_forward(UnitPlan& plan) {
  region_ = TensorRegion(plan.geometry());
  y_full_ = region_.plan_full(plan, output_columns_);
  sums_ranks_ = plan.geometry().tensor_degree > 1;
  plan.matmul(plan.geometry().full_rows(), output_columns_, input_columns_, Transpose::kNo, Transpose::kYes, Accumulate::kNo,
              bias_.present() && !sums_ranks_ ? Epilogue::kBias : Epilogue::kNone);
}

void RowParallelLinear::plan_backward_input(UnitPlan& plan) {
  d_y_ = KeptGradient(plan, output_columns_);
  plan.matmul(plan.geometry().full_rows(), input_columns_, output_columns_, Transpose::kNo, Transpose::kNo);
}

void RowParallelLinear::plan_backward_input_gelu(UnitPlan& plan) {
  d_y_ = KeptGradient(plan, output_columns_);
  plan.matmul(plan.geometry().full_rows(), input_columns_, output_columns_, Transpose::kNo, Transpose::kNo, Accumulate::kNo,
              Epilogue::kGeluBackward);
}

void RowParallelLinear::plan_backward_weight(UnitPlan& plan) {
  partial_bias_ = plan.geometry().shards_sequence();
  plan.weight_gradient(output_columns_, input_columns_, plan.geometry().full_rows(),
                       bias_.present() && !partial_bias_ ? Epilogue::kBiasGradient : Epilogue::kNone);
}

void RowParallelLinear::forward(const UnitRun& run, TensorView y, ConstTensorView x) const {
  const TensorView full = run.view(y_full_);
  const MatmulOperands product =
      run.product(as_rows(region_.leave_buffer(y, full)), x, Transpose::kNo, run.weight(weight_), Transpose::kYes);
  if (bias_.present() && !sums_ranks_) run.ops.matmul_bias(run.stream, product, run.weight(bias_));
  else run.matmul(product);
  region_.leave(run, y, full);
  if (bias_.present() && sums_ranks_) run.ops.add_bias(run.stream, as_rows(y), run.weight(bias_));
}

void RowParallelLinear::backward_input(const UnitRun& run, TensorView d_x) const {
  run.matmul(d_x, as_rows(d_y_.gather(run)), Transpose::kNo, run.weight(weight_), Transpose::kNo);
}

void RowParallelLinear::backward_input_gelu(const UnitRun& run, TensorView d_pre, TensorView d_x, ConstTensorView pre) const {
  run.ops.matmul_gelu_backward(
      run.stream, run.product(d_x, as_rows(d_y_.gather(run)), Transpose::kNo, run.weight(weight_), Transpose::kNo), pre, d_pre);
}

void RowParallelLinear::backward_weight(const UnitRun& run, ConstTensorView x) const {
  const ConstTensorView d_y = as_rows(d_y_.full(run));
  if (bias_.present() && !partial_bias_) return run.weight_and_bias_gradient(weight_, bias_, d_y, x);
  if (bias_.present()) run.ops.sum_rows(run.stream, run.grad(bias_), as_rows(d_y_.local(run)), run.grad_mode());
  run.weight_gradient(weight_, d_y, x);
}

}  // namespace trident
