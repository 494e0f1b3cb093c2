#include "model/norm.h"

#include <cstdint>
#include <utility>

#include "model/model_constants.h"

namespace trident {

void Norm::declare(ParamList& list) {
  if (kind_ == NormKind::kPlainLayerNorm) return;
  weight_ = declare_vector(list, name_ + ".weight", width_, InitKind::kOnes, partial_);
  if (kind_ == NormKind::kLayerNorm) bias_ = declare_vector(list, name_ + ".bias", width_, InitKind::kZeros, partial_);
}

void Norm::plan(UnitPlan& plan, std::int64_t rows, RecomputeClass recompute) {
  rstd_ = plan.save(DType::kF32, {rows}, recompute);
  if (kind_ != NormKind::kRmsNorm) mean_ = plan.save(DType::kF32, {rows}, recompute);
}

void Norm::plan_backward(UnitPlan& plan) {
  if (kind_ != NormKind::kPlainLayerNorm) return;
  d_weight_ = plan.scratch(DType::kF32, {width_});
  d_bias_ = plan.scratch(DType::kF32, {width_});
}

void Norm::forward(const LayerRun& run, TensorView y, ConstTensorView x) const {
  switch (kind_) {
    case NormKind::kRmsNorm:
      run.ops.rms_norm_forward(run.stream, as_rows(y), run.view(rstd_), as_rows(x), run.weight(weight_), eps_);
      break;
    case NormKind::kLayerNorm:
      run.ops.layer_norm_forward(run.stream, as_rows(y), run.view(mean_), run.view(rstd_), as_rows(x), run.weight(weight_),
                                 run.weight(bias_), eps_);
      break;
    case NormKind::kPlainLayerNorm:
      run.ops.layer_norm_forward(run.stream, as_rows(y), run.view(mean_), run.view(rstd_), as_rows(x), run.constants.ones(),
                                 run.constants.zeros(), eps_);
      break;
  }
}

void Norm::backward(const LayerRun& run, TensorView d_x, ConstTensorView d_y, ConstTensorView x, Accumulate accumulate) const {
  switch (kind_) {
    case NormKind::kRmsNorm:
      run.ops.rms_norm_backward(run.stream, as_rows(d_x), run.grad(weight_), as_rows(d_y), as_rows(x), run.weight(weight_),
                                run.view(rstd_), accumulate, run.grad_mode());
      break;
    case NormKind::kLayerNorm:
      run.ops.layer_norm_backward(run.stream, as_rows(d_x), run.grad(weight_), run.grad(bias_), as_rows(d_y), as_rows(x),
                                  run.weight(weight_), run.view(mean_), run.view(rstd_), accumulate, run.grad_mode());
      break;
    case NormKind::kPlainLayerNorm:
      run.ops.layer_norm_backward(run.stream, as_rows(d_x), run.view(d_weight_), run.view(d_bias_), as_rows(d_y), as_rows(x),
                                  run.constants.ones(), run.view(mean_), run.view(rstd_), accumulate, Accumulate::kNo);
      break;
  }
}

Norm block_norm(const ModelConfig& config, std::string name) {
  return {config.norm, config.norm_eps, config.hidden, std::move(name), PartialGradient::kUnderSequenceParallelism};
}

}  // namespace trident
