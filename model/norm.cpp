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

void Norm::forward(LayerPass& p, TensorView y, ConstTensorView x, TensorView sum, const op::Summands& summands) const {
  const Shape rows{x.num_elements() / width_};
  const TensorView rstd = p.save(rstd_, DType::kF32, rows);
  const bool centers = kind_ == NormKind::kLayerNorm || kind_ == NormKind::kPlainLayerNorm;
  const TensorView mean = centers ? p.save(mean_, DType::kF32, rows) : TensorView();
  switch (kind_) {
    case NormKind::kRmsNorm:
      p.run(op::RmsNormForward{{.y = as_rows(y), .rstd = rstd, .x = as_rows(x), .weight = p.weight(weight_), .eps = eps_,
                                .sum = sum, .summands = summands}});
      break;
    case NormKind::kRmsNormRoundedOnce: {
      if (summands.any()) add(p, sum, summands);
      const ScratchScope scope(p.scratch_cursor());
      const TensorView squares = p.scratch(DType::kF32, rows);
      p.run(op::RmsNormSquares{.squares = squares, .x = as_rows(x)});
      p.run(op::RmsNormApply{{.y = as_rows(y), .rstd = rstd, .x = as_rows(x), .weight = p.weight(weight_), .eps = eps_}, squares,
                              width_});
      break;
    }
    case NormKind::kLayerNorm:
      p.run(op::LayerNormForward{{.y = as_rows(y), .rstd = rstd, .x = as_rows(x), .weight = p.weight(weight_), .eps = eps_,
                                  .sum = sum, .summands = summands}, mean, p.weight(bias_)});
      break;
    case NormKind::kPlainLayerNorm:
      p.run(op::LayerNormForward{{.y = as_rows(y), .rstd = rstd, .x = as_rows(x), .weight = p.constants.ones(), .eps = eps_,
                                  .sum = sum, .summands = summands}, mean, p.constants.zeros()});
      break;
  }
}

void Norm::backward(LayerPass& p, TensorView d_x, ConstTensorView d_y, ConstTensorView x, Accumulate accumulate) const {
  const ScratchScope scope(p.scratch_cursor());
  const TensorView d_weight = p.grad_or_scratch(weight_, width_);
  switch (kind_) {
    case NormKind::kRmsNorm:
      p.run(op::RmsNormBackward{{.d_x = as_rows(d_x), .d_weight = d_weight, .d_y = as_rows(d_y), .x = as_rows(x),
                                 .weight = p.weight(weight_), .rstd = p[rstd_], .accumulate_x = accumulate,
                                 .accumulate_weight = p.grad_mode()}});
      break;
    case NormKind::kRmsNormRoundedOnce: {
      const TensorView dots = p.scratch(DType::kF32, p[rstd_].shape());
      p.run(op::RmsNormDots{.dots = dots, .d_y = as_rows(d_y), .x = as_rows(x), .weight = p.weight(weight_)});
      p.run(op::RmsNormApplyBackward{{.d_x = as_rows(d_x), .d_weight = d_weight, .d_y = as_rows(d_y), .x = as_rows(x),
                                      .weight = p.weight(weight_), .rstd = p[rstd_], .accumulate_x = accumulate,
                                      .accumulate_weight = p.grad_mode()}, dots, width_});
      break;
    }
    case NormKind::kLayerNorm:
      p.run(op::LayerNormBackward{{.d_x = as_rows(d_x), .d_weight = d_weight, .d_y = as_rows(d_y), .x = as_rows(x),
                                   .weight = p.weight(weight_), .rstd = p[rstd_], .accumulate_x = accumulate,
                                   .accumulate_weight = p.grad_mode()}, p.grad_or_scratch(bias_, width_), p[mean_]});
      break;
    case NormKind::kPlainLayerNorm: {
      const TensorView d_zeros = p.scratch(DType::kF32, {width_});
      p.run(op::LayerNormBackward{{.d_x = as_rows(d_x), .d_weight = d_weight, .d_y = as_rows(d_y), .x = as_rows(x),
                                   .weight = p.constants.ones(), .rstd = p[rstd_], .accumulate_x = accumulate,
                                   .accumulate_weight = Accumulate::kNo}, d_zeros, p[mean_]});
      break;
    }
  }
}

void add(LayerPass& p, TensorView x, const op::Summands& summands) {
  if (!summands.any()) return;
  if (summands.bias_data() != nullptr)
    p.run(op::AddBias{.x = as_rows(x), .bias = summands.bias, .residual = summands.residual});
  else
    p.run(op::Add{.out = x, .a = x, .b = summands.residual});
}

Norm block_norm(const ModelConfig& config, std::string name, RecomputeClass recompute) {
  return {config.norm, config.norm_eps, config.hidden, std::move(name), PartialGradient::kUnderSequenceParallelism, recompute};
}

}  // namespace trident
