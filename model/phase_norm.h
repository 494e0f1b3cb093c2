// The norm of a block's phase, before what the phase multiplies (x + f(norm(x))) or after it (x + norm(f(x))).
#pragma once

#include <string>

#include "core/function_ref.h"
#include "model/config/model_config.h"
#include "model/layer.h"
#include "model/norm.h"

namespace trident {

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

}  // namespace trident
