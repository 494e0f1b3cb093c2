// RMSNorm (Zhang and Sennrich 2019) with either rounding, LayerNorm (Ba et al. 2016), and LayerNorm without parameters, over the
// last dimension.
#pragma once

#include <cstdint>
#include <string>

#include "model/config/model_config.h"
#include "model/declare.h"
#include "model/layer.h"

namespace trident {

class Norm {
 public:
  // Parameters "<name>.weight" and, for LayerNorm, "<name>.bias" of `width` elements.
  // `recompute`: of the statistics, which are saved.
  Norm(NormKind kind, double eps, std::int64_t width, std::string name, PartialGradient partial,
       RecomputeClass recompute = RecomputeClass::kBlock)
      : kind_(kind),
        eps_(static_cast<float>(eps)),
        width_(width),
        name_(std::move(name)),
        partial_(partial),
        mean_{"a norm's means", ActivationKind::kNorms, LastUse::kB, recompute},
        rstd_{"a norm's reciprocal deviations", ActivationKind::kNorms, LastUse::kB, recompute} {}

  void declare(ParamList& list);
  // y T[.., width] from x of the same shape.
  void forward(LayerPass& p, TensorView y, ConstTensorView x) const { forward(p, y, x, {}, {}); }
  // The same of x, which still lacks `summands` and gets them.
  void forward(LayerPass& p, TensorView y, TensorView x, const op::Summands& summands) const { forward(p, y, x, x, summands); }
  // d_x (+)= the gradient of x; parameter gradients are written (grad_mode). d_x may be d_y for the RMS norms.
  void backward(LayerPass& p, TensorView d_x, ConstTensorView d_y, ConstTensorView x, Accumulate accumulate) const;

 private:
  void forward(LayerPass& p, TensorView y, ConstTensorView x, TensorView sum, const op::Summands& summands) const;

  NormKind kind_;
  float eps_;
  std::int64_t width_;
  std::string name_;
  PartialGradient partial_;
  ParamId weight_, bias_;
  Saved mean_, rstd_;  // f32 [rows]
};

// x T[S',B,H] gets what it lacks.
void add(LayerPass& p, TensorView x, const op::Summands& summands);

// The norm of a model's blocks and end.
Norm block_norm(const ModelConfig& config, std::string name, RecomputeClass recompute = RecomputeClass::kBlock);

}  // namespace trident
