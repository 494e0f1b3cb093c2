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

void Norm::forward(LayerPass& p, TensorView y, ConstTensorView x) const {
  const Shape rows{x.num_elements() / width_};
  const TensorView rstd = p.save(rstd_, DType::kF32, rows);
  const bool centers = kind_ == NormKind::kLayerNorm || kind_ == NormKind::kPlainLayerNorm;
  const TensorView mean = centers ? p.save(mean_, DType::kF32, rows) : TensorView();
  switch (kind_) {
    case NormKind::kRmsNorm: p.ops.rms_norm_forward(p.stream, as_rows(y), rstd, as_rows(x), p.weight(weight_), eps_); break;
    case NormKind::kRmsNormRoundedOnce: {
      const ScratchScope scope(p.scratch_cursor());
      const TensorView squares = p.scratch(DType::kF32, rows);
      p.ops.rms_norm_squares(p.stream, squares, as_rows(x));
      p.ops.rms_norm_apply(p.stream, as_rows(y), rstd, as_rows(x), p.weight(weight_), squares, width_, eps_);
      break;
    }
    case NormKind::kLayerNorm:
      p.ops.layer_norm_forward(p.stream, as_rows(y), mean, rstd, as_rows(x), p.weight(weight_), p.weight(bias_), eps_);
      break;
    case NormKind::kPlainLayerNorm:
      p.ops.layer_norm_forward(p.stream, as_rows(y), mean, rstd, as_rows(x), p.constants.ones(), p.constants.zeros(), eps_);
      break;
  }
}

void Norm::backward(LayerPass& p, TensorView d_x, ConstTensorView d_y, ConstTensorView x, Accumulate accumulate) const {
  switch (kind_) {
    case NormKind::kRmsNorm:
      p.ops.rms_norm_backward(p.stream, as_rows(d_x), p.grad(weight_), as_rows(d_y), as_rows(x), p.weight(weight_), p[rstd_],
                              accumulate, p.grad_mode());
      break;
    case NormKind::kRmsNormRoundedOnce: {
      const ScratchScope scope(p.scratch_cursor());
      const TensorView dots = p.scratch(DType::kF32, p[rstd_].shape());
      p.ops.rms_norm_dots(p.stream, dots, as_rows(d_y), as_rows(x), p.weight(weight_));
      p.ops.rms_norm_apply_backward(p.stream, as_rows(d_x), p.grad(weight_), as_rows(d_y), as_rows(x), p.weight(weight_), p[rstd_],
                                    dots, width_, accumulate, p.grad_mode());
      break;
    }
    case NormKind::kLayerNorm:
      p.ops.layer_norm_backward(p.stream, as_rows(d_x), p.grad(weight_), p.grad(bias_), as_rows(d_y), as_rows(x), p.weight(weight_),
                                p[mean_], p[rstd_], accumulate, p.grad_mode());
      break;
    case NormKind::kPlainLayerNorm: {
      const ScratchScope scope(p.scratch_cursor());  // of the gradients of constants
      const TensorView d_ones = p.scratch(DType::kF32, {width_}), d_zeros = p.scratch(DType::kF32, {width_});
      p.ops.layer_norm_backward(p.stream, as_rows(d_x), d_ones, d_zeros, as_rows(d_y), as_rows(x), p.constants.ones(), p[mean_],
                                p[rstd_], accumulate, Accumulate::kNo);
      break;
    }
  }
}

Norm block_norm(const ModelConfig& config, std::string name, RecomputeClass recompute) {
  return {config.norm, config.norm_eps, config.hidden, std::move(name), PartialGradient::kUnderSequenceParallelism, recompute};
}

}  // namespace trident
