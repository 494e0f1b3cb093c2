#include "optim/lion.h"

namespace trident {
namespace {

class Lion final : public ElementRule {
 public:
  using ElementRule::ElementRule;
  void update(Ops& ops, Stream& stream, const UpdateElements& elements, const UpdateStep& step) const override;
};

void Lion::update(Ops& ops, Stream& stream, const UpdateElements& elements, const UpdateStep& step) const {
  ops.lion(stream, elements.param, elements.master, elements.states[0], elements.grad, update_params(config_, step));
}

}  // namespace

std::unique_ptr<const UpdateRule> make_lion(const UpdateRuleConfig& config) {
  static const UpdateState states[] = {{"exp_avg", "first moments"}};
  return std::make_unique<Lion>(config, states);
}

}  // namespace trident
