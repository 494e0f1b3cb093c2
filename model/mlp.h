// The feed-forward phase of a block: y = x + dropout(W_down activation(W_up norm(x))), or with the norm after it
// y = x + dropout(norm(W_down activation(W_up x))), the inner width F split over the tensor-parallel ranks. SwiGLU (Shazeer 2020,
// arXiv 2002.05202): W_up is [gate | up] on every rank.
// Saved: the norm's output (after: its input) and statistics, and the activation's input. The pass that makes that one's gradient
// makes the activation again beside it, for the gradient of W_down.
#pragma once

#include <cstdint>
#include <optional>

#include "model/config/model_config.h"
#include "model/config/param_names.h"
#include "model/dropout.h"
#include "model/layer.h"
#include "model/norm.h"
#include "tensor_parallel/column_parallel_linear.h"
#include "tensor_parallel/row_parallel_linear.h"

namespace trident {

class Mlp {
 public:
  Mlp(const ModelConfig& config, std::int64_t layer);

  void declare(ParamList& list);

  void derive(LayerPass& p) const {
    up_.derive(p);
    down_.derive(p);
  }
  // x still lacks `lacking` and gets it. y may not alias x.
  void forward(LayerPass& p, TensorView x, const op::Summands& lacking, TensorView y) const;
  // Makes what forward saves again (full recompute).
  void recompute(LayerPass& p, TensorView x, const op::Summands& lacking) const;
  // d: gradient of y -> gradient of x, in place.
  void backward_input(LayerPass& p, ConstTensorView x, TensorView d) const;
  // x is looked at where the norm comes after.
  void backward_weight(LayerPass& p, ConstTensorView x) const;

 private:
  bool gelu() const { return config_.activation == Activation::kGeluTanh; }
  // The first product; with `act` also its activation.
  void expand(LayerPass& p, ConstTensorView x, std::optional<TensorView> act) const;

  ModelConfig config_;
  BlockNames names_;
  PhaseNorm norm_;
  Dropout dropout_;
  ColumnParallelLinear up_;
  RowParallelLinear down_;
  std::int64_t inner_ = 0;                       // F/t
  Saved pre_{"the activation's input", ActivationKind::kMlp, LastUse::kB};  // T[S*B, F/t or 2F/t]
  BetweenIW d_pre_{"the gradient of the activation's input"};
  BetweenIW act_{"the activation"};              // T[S*B, F/t]; before, its gradient
};

}  // namespace trident
