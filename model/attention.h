// The attention phase of a block: y = x + dropout(W_o attention(norm(x))), or with the norm after it
// y = x + dropout(norm(W_o attention(x))); heads split over the tensor-parallel ranks.
//
// On this rank: n = N/t query heads, k = max(K/t, 1) key/value heads. With t <= K queries, keys and values are one fused
// projection; with t > K the key/value heads are replicated over t/K consecutive ranks and are a projection of their own, because
// their gradients are summed over the replicas. Both cases run the same code over a list of projections.
// With clip_qkv what the projections give is bounded before it is split into heads, and saved unbounded.
// Saved: the norm's output (after: its input) and statistics, q, k, v, the output and log-sum-exp, all head-major [B, heads, S, D].
// Where attention reads rows (Ops::attends_by_rows), the output stays the rows that it is multiplied as, and q, k and v stay the
// projections' rows, which attention turns while it reads them, unless q and k are normed in between.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "model/config/model_config.h"
#include "model/config/param_names.h"
#include "model/dropout.h"
#include "model/layer.h"
#include "model/norm.h"
#include "tensor_parallel/column_parallel_linear.h"
#include "tensor_parallel/row_parallel_linear.h"

namespace trident {

class Attention {
 public:
  Attention(const ModelConfig& config, std::int64_t layer);

  void declare(ParamList& list);

  void derive(LayerPass& p) const {
    qkv_.derive(p);
    output_.derive(p);
  }
  // y may not alias x. Returns what y still lacks, the residual x among it.
  op::Summands forward(LayerPass& p, ConstTensorView x, TensorView y) const;
  // Makes the core's output and log-sum-exp again from the saved q, k, v (selective recompute).
  void recompute_core(LayerPass& p) const;
  // d: gradient of y -> gradient of x, in place.
  void backward_input(LayerPass& p, ConstTensorView x, TensorView d) const;
  void backward_weight(LayerPass& p, ConstTensorView x) const;

 private:
  // One of q, k, v: where its heads lie in the projections' outputs, and what is saved of it.
  struct Heads {
    std::size_t projection = 0;
    std::int64_t first_column = 0, count = 0;
    Saved saved{"q, k or v", ActivationKind::kAttention, LastUse::kB};  // T[B,count,S,D], as the core reads it
    // Only with q/k norm: T[B,count,S,D]; where that is over all heads T[R, count * D].
    Saved before{"q or k before norm and rotation", ActivationKind::kAttention, LastUse::kB};
  };
  static constexpr std::size_t kMaxProjections = 2;
  using Views = std::array<TensorView, kMaxProjections>;

  // Whether the window hides some of the sequence from this layer.
  bool is_windowed(const LayerGeometry& g) const { return slides_ && g.sequence > config_.sliding_window; }
  AttentionShape shape(const LayerGeometry& geometry) const;
  ConstTensorView first_key(const LayerPass& p) const;
  std::int64_t inner_columns() const { return q_.count * config_.head_dim; }
  std::span<const TensorView> used(const Views& views) const { return std::span(views).first(qkv_.projections().size()); }
  void split(LayerPass& p, const Heads& heads, const Norm* norm, const op::Rotation& rotation, const Views& rows) const;
  void merge_gradient(LayerPass& p, const Heads& heads, const Norm* norm, const op::Rotation& rotation, TensorView d,
                      const Views& d_rows) const;
  bool heads_stay_rows(const LayerPass& p) const;
  // q, k or v as the core reads it, where it begins in rows, and the output as the core writes it.
  TensorView heads_of(const LayerPass& p, const Heads& heads) const;
  HeadColumns columns() const { return {q_.first_column, k_.first_column, v_.first_column}; }
  Shape output_shape(const LayerPass& p) const;
  TensorView merged_output(LayerPass& p) const;
  // The projections' rows as heads are split from them.
  Views project(LayerPass& p, ConstTensorView x) const;
  op::Rotation rotation(const LayerPass& p) const;  // of queries and keys
  // The part of it that the core does, which reads rows as they were projected.
  op::Rotation rotation_of_rows(const LayerPass& p) const { return heads_stay_rows(p) ? rotation(p) : op::Rotation(); }
  void attend_cached(LayerPass& p, const CachedStep& step) const;
  // The same of q and k together, for norms over all heads.
  void split_after_wide_norm(LayerPass& p, const Views& rows) const;
  void merge_gradient_through_wide_norm(LayerPass& p, TensorView d_q, TensorView d_k, const Views& d_rows) const;

  ModelConfig config_;
  bool slides_ = false;
  BlockNames names_;
  PhaseNorm norm_;
  Norm query_norm_, key_norm_;
  WideQkNorm wide_norm_;
  Dropout dropout_;
  ColumnParallelLinear qkv_;
  RowParallelLinear output_;
  Heads q_, k_, v_;
  Saved out_{"attention's output", ActivationKind::kAttention, LastUse::kW, RecomputeClass::kAttention};
  Saved lse_{"attention's log-sum-exp", ActivationKind::kAttention, LastUse::kB, RecomputeClass::kAttention};
  std::array<Saved, kMaxProjections> rows_{Saved{"rows of q, k and v", ActivationKind::kAttention, LastUse::kB},
                                           Saved{"rows of k and v", ActivationKind::kAttention, LastUse::kB}};
  std::array<Saved, kMaxProjections> unclipped_{Saved{"q, k and v unclipped", ActivationKind::kAttention, LastUse::kB},
                                                Saved{"k and v unclipped", ActivationKind::kAttention, LastUse::kB}};
  // T[S*B, C_i]
  std::array<BetweenIW, kMaxProjections> d_rows_{BetweenIW{"the gradient of q, k and v"}, BetweenIW{"the gradient of k and v"}};
};

}  // namespace trident
