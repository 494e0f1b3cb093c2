// RMSNorm (Zhang and Sennrich 2019) with either rounding, LayerNorm (Ba et al. 2016), and LayerNorm without parameters, over the
// last dimension.
#pragma once

#include <cstdint>
#include <string>

#include "core/function_ref.h"
#include "model/config/model_config.h"
#include "model/config/param_names.h"
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
  bool is_plain() const { return kind_ == NormKind::kPlainLayerNorm; }
  bool centers() const { return kind_ == NormKind::kLayerNorm || is_plain(); }
  ConstTensorView weight(const LayerPass& p) const;

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

// The norm of a block's phase, before what the phase multiplies (x + f(norm(x))) or after it (x + norm(f(x))).
class PhaseNorm {
 public:
  // Names of the norm's parameters, and of what is saved before and after the phase.
  PhaseNorm(const ModelConfig& config, std::string name, std::string_view normed, std::string_view projected)
      : norm_(block_norm(config, std::move(name))),
        after_(config.norm_placement == NormPlacement::kAfter),
        normed_{normed, ActivationKind::kNorms, LastUse::kW},
        projected_{projected, ActivationKind::kNorms, LastUse::kB} {}

  bool is_after() const { return after_; }
  void declare(ParamList& list) { norm_.declare(list); }

  // Saves what the phase multiplies: T[S',B,H] from x of that shape.
  void enter(LayerPass& p, ConstTensorView x) const;
  // The same of x that still lacks `summands`, and gets them.
  void enter(LayerPass& p, TensorView x, const op::Summands& summands) const;
  // That, once it was made.
  ConstTensorView input(const LayerPass& p, ConstTensorView x) const { return after_ ? x : ConstTensorView(p[normed_]); }
  // y T[S',B,H]: what `project` writes into its argument, of y's shape, and with the bias that it returns, or a view of nothing,
  // normed if the norm comes after. Returns the bias that y then still lacks.
  ConstTensorView leave(LayerPass& p, TensorView y, FunctionRef<ConstTensorView(TensorView)> project) const;

  // d_y: gradient of y -> that of what `project` wrote, in place.
  void backward_leave(LayerPass& p, TensorView d_y) const;
  // d += the gradient of x; d_input: that of input().
  void backward_enter(LayerPass& p, TensorView d, ConstTensorView d_input, ConstTensorView x) const;

 private:
  Norm norm_;
  bool after_;
  Saved normed_;     // T[S',B,H], where the norm comes before
  Saved projected_;  // T[S',B,H], where it comes after
};

// RMS norms of queries and of keys over all their heads (OLMo 2), which lie on different tensor-parallel ranks.
//
// R = S*B rows; Q, K columns of queries and keys on this rank. The sums that a row's norm needs are of all ranks' columns, so each
// pass all-reduces f32[2, R], queries and keys together. Where key heads are replicated (more ranks than key/value heads), one of
// the replicas counts: in forward it alone adds its squares; in backward every replica has a summand of the gradient (its own
// queries'), so all add their dots, and one alone subtracts what the dots stand for.
class WideQkNorm {
 public:
  WideQkNorm(const ModelConfig& config, const BlockNames& names);

  // Weights "<query_norm>.weight" and "<key_norm>.weight", split as the heads are.
  void declare(ParamList& list);

  // q_out T[R,Q], k_out T[R,K] are overwritten.
  void forward(LayerPass& p, TensorView q_out, TensorView k_out, ConstTensorView q, ConstTensorView k) const;
  // d_q, d_k: gradients of forward's results -> those of q and k, in place. Weight gradients are written (grad_mode).
  void backward(LayerPass& p, TensorView d_q, TensorView d_k, ConstTensorView q, ConstTensorView k) const;

 private:
  // Whether this rank's keys are those that count.
  bool counts_keys(const LayerPass& p) const { return p.geometry.tensor_rank % key_replicas_ == 0; }

  std::string query_name_, key_name_;
  std::int64_t query_width_, key_width_, kv_heads_;  // of all ranks
  float eps_;
  int key_replicas_ = 1;
  ParamId query_weight_, key_weight_;
  Saved rstd_{"reciprocal deviations of queries and keys", ActivationKind::kAttention, LastUse::kB};  // f32 [2, R]
};

}  // namespace trident
