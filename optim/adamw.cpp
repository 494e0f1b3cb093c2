#include "optim/adamw.h"

#include <cmath>
#include <cstdint>

namespace trident {

std::span<const UpdateState> AdamWRule::states() const {
  static const UpdateState states[] = {{"exp_avg", "first moments"}, {"exp_avg_sq", "second moments"}};
  return states;
}

void AdamWRule::update(Ops& ops, Stream& stream, const UpdateElements& elements, const UpdateStep& step) const {
  AdamWParams params;
  params.lr = static_cast<float>(step.lr);
  params.beta1 = static_cast<float>(config_.betas[0]);
  params.beta2 = static_cast<float>(config_.betas[1]);
  params.eps = static_cast<float>(config_.eps);
  params.weight_decay = step.decays ? static_cast<float>(config_.weight_decay) : 0.0f;
  params.grad_scale = static_cast<float>(step.gradient_scale);
  params.bias_correction1 = static_cast<float>(1.0 / (1.0 - std::pow(config_.betas[0], static_cast<double>(step.update))));
  params.bias_correction2 = static_cast<float>(1.0 / (1.0 - std::pow(config_.betas[1], static_cast<double>(step.update))));
  params.rounding = step.rounding;
  if (params.rounding) params.rounding->update = static_cast<std::uint64_t>(step.update);
  ops.adamw(stream, elements.param, elements.master, elements.states[0], elements.states[1], elements.grad, params);
}

}  // namespace trident
