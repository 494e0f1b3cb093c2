#include "optim/lion.h"

namespace trident {

std::span<const UpdateState> LionRule::states() const {
  static const UpdateState states[] = {{"exp_avg", "first moments"}};
  return states;
}

void LionRule::update(Ops& ops, Stream& stream, const UpdateElements& elements, const UpdateStep& step) const {
  ops.lion(stream, elements.param, elements.master, elements.states[0], elements.grad, update_params(config_, step));
}

}  // namespace trident
