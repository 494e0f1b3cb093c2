#include "tensor_parallel/layer_plan.h"

namespace trident {

ParamId ParamList::add(ParamSpec spec) {
  specs_.push_back(std::move(spec));
  return {static_cast<int>(specs_.size()) - 1};
}

}  // namespace trident
