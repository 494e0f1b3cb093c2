#include "optim/adamw.h"

#include <cmath>

namespace trident {
namespace {

class AdamW final : public ElementRule {
 public:
  using ElementRule::ElementRule;
  void update(Ops& ops, Stream& stream, const UpdateElements& elements, const UpdateStep& step) const override;
};

void AdamW::update(Ops& ops, Stream& stream, const UpdateElements& elements, const UpdateStep& step) const {
  UpdateParams params = update_params(config_, step);
  params.bias_correction1 = static_cast<float>(1.0 / (1.0 - std::pow(config_.betas[0], static_cast<double>(step.update))));
  params.bias_correction2 = static_cast<float>(1.0 / (1.0 - std::pow(config_.betas[1], static_cast<double>(step.update))));
  ops.adamw(stream, elements.param, elements.master, elements.states[0], elements.states[1], elements.grad, params);
}

}  // namespace

std::unique_ptr<const UpdateRule> make_adamw(const UpdateRuleConfig& config) {
  static const UpdateState states[] = {{"exp_avg", "first moments"}, {"exp_avg_sq", "second moments"}};
  return std::make_unique<AdamW>(config, states);
}

}  // namespace trident
