// The instruction levels that this processor has, lowest first.
#pragma once

#include <vector>

#include "device/cpu/cpu_features.h"
#include "device/row_kernels/isa_level.h"

namespace trident {

inline std::vector<IsaLevel> isa_levels() {
  std::vector<IsaLevel> all;
  for (const IsaLevel level : {IsaLevel::kBaseline, IsaLevel::kAvx2, IsaLevel::kAvx512})
    if (level <= detect_cpu_features().level) all.push_back(level);
  return all;
}

}  // namespace trident
