// RMSNorm (Zhang and Sennrich 2019), LayerNorm (Ba et al. 2016), and LayerNorm without parameters, over the last dimension.
#pragma once

#include <cstdint>
#include <string>

#include "model/declare.h"
#include "model/layer.h"
#include "model/model_config.h"

namespace trident {

class Norm {
 public:
  // Parameters "<name>.weight" and, for LayerNorm, "<name>.bias" of `width` elements.
  Norm(NormKind kind, double eps, std::int64_t width, std::string name, PartialGradient partial)
      : kind_(kind), eps_(static_cast<float>(eps)), width_(width), name_(std::move(name)), partial_(partial) {}

  void declare(ParamList& list);
  // Statistics of `rows` rows are saved.
  void plan(UnitPlan& plan, std::int64_t rows, RecomputeClass recompute);
  // Scratch of backward, in the caller's scope.
  void plan_backward(UnitPlan& plan);

  // y T[.., width] from x of the same shape.
  void forward(const LayerRun& run, TensorView y, ConstTensorView x) const;
  // d_x (+)= the gradient of x; parameter gradients are written (grad_mode). d_x may be d_y for RMSNorm.
  void backward(const LayerRun& run, TensorView d_x, ConstTensorView d_y, ConstTensorView x, Accumulate accumulate) const;

 private:
  NormKind kind_;
  float eps_;
  std::int64_t width_;
  std::string name_;
  PartialGradient partial_;
  ParamId weight_, bias_;
  RegionTensor mean_, rstd_;          // f32 [rows]
  RegionTensor d_weight_, d_bias_;    // f32 [width]: where the gradients of constants go
};

// The norm of a model's blocks and end.
Norm block_norm(const ModelConfig& config, std::string name);

}  // namespace trident
