#include "model/phase_norm.h"

namespace trident {

void PhaseNorm::enter(LayerPass& p, ConstTensorView x) const {
  if (!after_) norm_.forward(p, p.save(normed_, x.dtype(), x.shape()), x);
}

void PhaseNorm::enter(LayerPass& p, TensorView x, const op::Summands& summands) const {
  if (after_)
    add(p, x, summands);
  else
    norm_.forward(p, p.save(normed_, x.dtype(), x.shape()), x, summands);
}

ConstTensorView PhaseNorm::leave(LayerPass& p, TensorView y, FunctionRef<ConstTensorView(TensorView)> project) const {
  if (!after_) return project(y);
  const TensorView projected = p.save(projected_, y.dtype(), y.shape());
  const ConstTensorView bias = project(projected);
  if (bias.data() != nullptr) p.run(op::AddBias{.x = as_rows(projected), .bias = bias});
  norm_.forward(p, y, projected);
  return {};
}

void PhaseNorm::backward_leave(LayerPass& p, TensorView d_y) const {
  if (after_) norm_.backward(p, d_y, d_y, p[projected_], Accumulate::kNo);
}

void PhaseNorm::backward_enter(LayerPass& p, TensorView d, ConstTensorView d_input, ConstTensorView x) const {
  if (after_)
    p.run(op::Add{.out = d, .a = d, .b = d_input});
  else
    norm_.backward(p, d, d_input, x, Accumulate::kYes);
}

}  // namespace trident
