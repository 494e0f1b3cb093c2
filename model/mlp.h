// The feed-forward phase of a block: y = x + dropout(W_down activation(W_up norm(x))), the inner width F split over the
// tensor-parallel ranks. SwiGLU (Shazeer 2020, arXiv 2002.05202): W_up is [gate | up] on every rank.
// Saved: the norm's output and statistics, and the activation's input; the activation itself is made again where it is needed.
#pragma once

#include <cstdint>

#include "model/dropout.h"
#include "model/layer.h"
#include "model/model_config.h"
#include "model/norm.h"
#include "model/param_names.h"
#include "tensor_parallel/column_parallel_linear.h"
#include "tensor_parallel/row_parallel_linear.h"

namespace trident {

class Mlp {
 public:
  Mlp(const ModelConfig& config, std::int64_t layer);

  void declare(ParamList& list);
  void plan(UnitPlan& plan);

  // y may not alias x.
  void forward(const LayerRun& run, ConstTensorView x, TensorView y) const;
  // Makes what forward saves again (full recompute).
  void recompute(const LayerRun& run, ConstTensorView x) const;
  // d: gradient of y -> gradient of x, in place.
  void backward_input(const LayerRun& run, ConstTensorView x, TensorView d) const;
  void backward_weight(const LayerRun& run) const;

 private:
  void activate(const LayerRun& run, TensorView out) const;

  ModelConfig config_;
  BlockNames names_;
  Norm norm_;
  Dropout dropout_;
  ColumnParallelLinear up_;
  RowParallelLinear down_;
  std::int64_t inner_ = 0;  // F/t
  RegionTensor normed_, pre_, d_pre_;  // [S',B,H]; T[S*B, F/t or 2F/t]: saved, kept
  RegionTensor act_, d_act_, act_weight_, d_normed_;
};

}  // namespace trident
