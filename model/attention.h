// The attention phase of a block: y = x + dropout(W_o attention(norm(x))), heads split over the tensor-parallel ranks.
//
// On this rank: n = N/t query heads, k = max(K/t, 1) key/value heads. With t <= K queries, keys and values are one fused
// projection; with t > K the key/value heads are replicated over t/K consecutive ranks and are a projection of their own, because
// their gradients are summed over the replicas. Both cases run the same code over a list of projections.
// Saved: the norm's output and statistics, q, k, v, the output and log-sum-exp, all head-major [B, heads, S, D].
#pragma once

#include <array>
#include <cstdint>
#include <span>

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

  // y may not alias x.
  void forward(LayerPass& p, ConstTensorView x, TensorView y) const;
  // Makes the core's output and log-sum-exp again from the saved q, k, v (selective recompute).
  void recompute_core(LayerPass& p) const;
  // d: gradient of y -> gradient of x, in place.
  void backward_input(LayerPass& p, ConstTensorView x, TensorView d) const;
  void backward_weight(LayerPass& p) const;

 private:
  // One of q, k, v: where its heads lie in the projections' outputs, and what is saved of it.
  struct Heads {
    std::size_t projection = 0;
    std::int64_t first_column = 0, count = 0;
    Saved saved{"q, k or v", LastUse::kB};                         // T[B,count,S,D], as the core reads it
    Saved before{"q or k before norm and rotation", LastUse::kB};  // only with q/k norm
  };
  static constexpr std::size_t kMaxProjections = 2;
  using Views = std::array<TensorView, kMaxProjections>;

  AttentionShape shape(const LayerGeometry& geometry) const;
  std::int64_t inner_columns() const { return q_.count * config_.head_dim; }
  std::span<const TensorView> used(const Views& views) const { return std::span(views).first(qkv_.projections().size()); }
  void split(LayerPass& p, const Heads& heads, const Norm* norm, bool rotate, const Views& rows) const;
  void merge_gradient(LayerPass& p, const Heads& heads, const Norm* norm, bool rotate, TensorView d, const Views& d_rows) const;
  void rotate(LayerPass& p, TensorView heads, Transpose inverse) const;

  ModelConfig config_;
  BlockNames names_;
  Norm norm_, query_norm_, key_norm_;
  Dropout dropout_;
  ColumnParallelLinear qkv_;
  RowParallelLinear output_;
  Heads q_, k_, v_;
  Saved normed_{"the attention norm's output", LastUse::kW};
  Saved out_{"attention's output", LastUse::kW, RecomputeClass::kAttention};
  Saved lse_{"attention's log-sum-exp", LastUse::kB, RecomputeClass::kAttention};
  std::array<Kept, kMaxProjections> d_rows_{Kept{"the gradient of q, k and v"}, Kept{"the gradient of k and v"}};  // T[S*B, C_i]
};

}  // namespace trident
