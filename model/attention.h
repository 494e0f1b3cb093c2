// The attention phase of a block: y = x + dropout(W_o attention(norm(x))), heads split over the tensor-parallel ranks.
//
// On this rank: n = N/t query heads, k = max(K/t, 1) key/value heads. With t <= K queries, keys and values are one fused
// projection; with t > K the key/value heads are replicated over t/K consecutive ranks and are a projection of their own, because
// their gradients are summed over the replicas. Both cases run the same code over a list of projections.
// Saved: the norm's output and statistics, q, k, v, the output and log-sum-exp, all head-major [B, heads, S, D].
#pragma once

#include <array>
#include <cstdint>

#include "model/dropout.h"
#include "model/layer.h"
#include "model/model_config.h"
#include "model/norm.h"
#include "model/param_names.h"
#include "tensor_parallel/column_parallel_linear.h"
#include "tensor_parallel/row_parallel_linear.h"

namespace trident {

class Attention {
 public:
  Attention(const ModelConfig& config, std::int64_t layer);

  void declare(ParamList& list);
  void plan(UnitPlan& plan);

  // y may not alias x.
  void forward(const LayerRun& run, ConstTensorView x, TensorView y) const;
  // Makes the core's output and log-sum-exp again from the saved q, k, v (selective recompute).
  void recompute_core(const LayerRun& run) const;
  // d: gradient of y -> gradient of x, in place.
  void backward_input(const LayerRun& run, ConstTensorView x, TensorView d) const;
  void backward_weight(const LayerRun& run) const;

 private:
  // One of q, k, v: where its heads lie in the projections' outputs, and what is saved of it.
  struct Heads {
    std::size_t projection = 0;
    std::int64_t first_column = 0, count = 0;
    RegionTensor saved;     // T[B,count,S,D], as the core reads it
    RegionTensor before;    // before norm and rotation; only with q/k norm
    RegionTensor gradient;  // scratch of backward_input
  };
  static constexpr std::size_t kMaxProjections = 2;
  using Views = std::array<TensorView, kMaxProjections>;

  void plan_forward(UnitPlan& plan);
  void plan_backward(UnitPlan& plan);
  Views views(const LayerRun& run, const std::array<RegionTensor, kMaxProjections>& tensors) const;
  void split(const LayerRun& run, const Heads& heads, const Norm* norm, bool rotate, const Views& rows) const;
  void merge_gradient(const LayerRun& run, const Heads& heads, const Norm* norm, bool rotate, const Views& d_rows) const;
  void rotate(const LayerRun& run, TensorView heads, Transpose inverse) const;

  ModelConfig config_;
  BlockNames names_;
  Norm norm_, query_norm_, key_norm_;
  Dropout dropout_;
  ColumnParallelLinear qkv_;
  RowParallelLinear output_;
  AttentionShape shape_;
  std::size_t num_projections_ = 1;
  Heads q_, k_, v_;
  RegionTensor normed_, out_, lse_;
  std::array<RegionTensor, kMaxProjections> rows_, d_rows_;  // T[S*B, C_i]: scratch of forward; kept
  RegionTensor merged_, d_merged_, d_out_, d_normed_, merged_weight_;
};

}  // namespace trident
