#include "tensor_parallel/layer_plan.h"

#include <algorithm>

#include "core/int_math.h"
#include "device/arena.h"

namespace trident {

ParamId ParamList::add(ParamSpec spec) {
  if (tuning_ != nullptr) {
    for (PartSpec& part : spec.parts) part.trainable = tuning_->trains(part.tensor);
    spec.trainable = std::ranges::any_of(spec.parts, &PartSpec::trainable);
  }
  specs_.push_back(std::move(spec));
  return {static_cast<int>(specs_.size()) - 1};
}

BytesByKind UnitMemory::bytes_by_kind(Region region) const {
  BytesByKind sum{};
  for (const auto& [handle, tensor] : places) {
    if (tensor.region != region) continue;
    const ActivationKind kind = region == Region::kKept ? ActivationKind::kGradients : static_cast<const Saved*>(handle)->kind;
    sum[static_cast<std::size_t>(kind)] += round_up(tensor.num_bytes(), kArenaAlignment);
  }
  return sum;
}

}  // namespace trident
