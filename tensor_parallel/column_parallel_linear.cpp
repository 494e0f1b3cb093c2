#include "tensor_parallel/column_parallel_linear.h"

namespace trident {

void ColumnParallelLinear::plan_forward(UnitPlan& plan) {
  region_ = TensorRegion(plan.geometry());
  x_forward_ = region_.plan_full(plan, input_columns_);
  for (const Projection& p : projections_)
    plan.matmul(plan.geometry().full_rows(), p.output_columns, input_columns_, Transpose::kNo, Transpose::kYes, Accumulate::kNo,
                p.bias.present() ? Epilogue::kBias : Epilogue::kNone);
}

void ColumnParallelLinear::plan_forward_gelu(UnitPlan& plan) {
  plan_forward(plan);
  const Projection& p = projections_.front();
  if (p.bias.present())
    plan.matmul(plan.geometry().full_rows(), p.output_columns, input_columns_, Transpose::kNo, Transpose::kYes, Accumulate::kNo,
                Epilogue::kBiasGelu);
}

void ColumnParallelLinear::plan_backward_input(UnitPlan& plan) {
  d_x_full_ = region_.plan_full(plan, input_columns_);
  Accumulate accumulate = Accumulate::kNo;
  for (const Projection& p : projections_) {
    plan.matmul(plan.geometry().full_rows(), input_columns_, p.output_columns, Transpose::kNo, Transpose::kNo, accumulate);
    accumulate = Accumulate::kYes;
  }
}

void ColumnParallelLinear::plan_backward_weight(UnitPlan& plan) {
  x_weight_ = region_.plan_full(plan, input_columns_);
  for (const Projection& p : projections_)
    plan.weight_gradient(p.output_columns, input_columns_, plan.geometry().full_rows(),
                         p.bias.present() ? Epilogue::kBiasGradient : Epilogue::kNone);
}

void ColumnParallelLinear::forward(const UnitRun& run, ConstTensorView x, std::span<const TensorView> y) const {
  const ConstTensorView rows = as_rows(region_.enter(run, x, run.view(x_forward_)));
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const Projection& p = projections_[i];
    const MatmulOperands product = run.product(y[i], rows, Transpose::kNo, run.weight(p.weight), Transpose::kYes);
    if (p.bias.present()) run.ops.matmul_bias(run.stream, product, run.weight(p.bias));
    else run.matmul(product);
  }
}

void ColumnParallelLinear::forward_gelu(const UnitRun& run, ConstTensorView x, TensorView y, TensorView activation) const {
  const Projection& p = projections_.front();
  if (!p.bias.present()) {
    forward(run, x, std::span(&y, 1));
    return run.ops.gelu_forward(run.stream, activation, y);
  }
  const ConstTensorView rows = as_rows(region_.enter(run, x, run.view(x_forward_)));
  run.ops.matmul_bias_gelu(run.stream, run.product(y, rows, Transpose::kNo, run.weight(p.weight), Transpose::kYes),
                           run.weight(p.bias), activation);
}

void ColumnParallelLinear::backward_input(const UnitRun& run, TensorView d_x, std::span<const TensorView> d_y) const {
  const TensorView full = run.view(d_x_full_);
  const TensorView summand = as_rows(region_.leave_buffer(d_x, full));
  Accumulate accumulate = Accumulate::kNo;
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const Projection& p = projections_[i];
    run.matmul(summand, d_y[i], Transpose::kNo, run.weight(p.weight), Transpose::kNo, accumulate);
    accumulate = Accumulate::kYes;
  }
  region_.leave(run, d_x, full);
}

void ColumnParallelLinear::backward_weight(const UnitRun& run, ConstTensorView x, std::span<const TensorView> d_y) const {
  const ConstTensorView rows = as_rows(region_.enter(run, x, run.view(x_weight_)));
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const Projection& p = projections_[i];
    if (p.bias.present()) run.weight_and_bias_gradient(p.weight, p.bias, d_y[i], rows);
    else run.weight_gradient(p.weight, d_y[i], rows);
  }
}

}  // namespace trident
