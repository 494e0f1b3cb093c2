// How many elements a parameter has: those of its logical tensors, padding and replicas not counted.
#pragma once

#include <cstdint>

#include "parallel/zero/shard_spec.h"

namespace trident::testing {

inline std::int64_t logical_elements(const ParamSpec& spec) {
  std::int64_t elements = 0;
  for (const PartSpec& part : spec.parts) elements += part.rows * (part.tensor_shape.rank() == 1 ? 1 : part.tensor_shape[1]);
  return elements;
}

}  // namespace trident::testing
