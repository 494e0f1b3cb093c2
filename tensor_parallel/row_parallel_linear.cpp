#include "tensor_parallel/row_parallel_linear.h"

namespace trident {

void RowParallelLinear::plan_forward(UnitPlan& plan) {
  region_ = TensorRegion(plan.geometry());
  y_full_ = region_.plan_full(plan, output_columns_);
  plan.matmul(plan.geometry().full_rows(), output_columns_, input_columns_, Transpose::kNo, Transpose::kYes);
}

void RowParallelLinear::plan_backward_input(UnitPlan& plan) {
  d_y_ = KeptGradient(plan, output_columns_);
  plan.matmul(plan.geometry().full_rows(), input_columns_, output_columns_, Transpose::kNo, Transpose::kNo);
}

void RowParallelLinear::plan_backward_weight(UnitPlan& plan) {
  plan.weight_gradient(output_columns_, input_columns_, plan.geometry().full_rows());
}

void RowParallelLinear::forward(const UnitRun& run, TensorView y, ConstTensorView x) const {
  const TensorView full = run.view(y_full_);
  run.matmul(as_rows(region_.leave_buffer(y, full)), x, Transpose::kNo, run.weight(weight_), Transpose::kYes);
  region_.leave(run, y, full);
  if (bias_.present()) run.ops.add_bias(run.stream, as_rows(y), run.weight(bias_));
}

void RowParallelLinear::backward_input(const UnitRun& run, TensorView d_x) const {
  if (bias_.present()) run.ops.sum_rows(run.stream, run.grad(bias_), as_rows(d_y(run)), run.grad_mode());
  run.matmul(d_x, as_rows(d_y_.gather(run)), Transpose::kNo, run.weight(weight_), Transpose::kNo);
}

void RowParallelLinear::backward_weight(const UnitRun& run, ConstTensorView x) const {
  run.weight_gradient(weight_, as_rows(d_y_.full(run)), x);
}

}  // namespace trident
