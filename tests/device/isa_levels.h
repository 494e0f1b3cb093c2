// The instruction levels that this processor has, lowest first. The thread sanitizer sees the highest alone: instructions change
// nothing in who waits for whom, and under it the lowest take minutes.
#pragma once

#include <vector>

#include "device/cpu/cpu_features.h"
#include "device/row_kernels/isa_level.h"

namespace trident {

inline std::vector<IsaLevel> isa_levels() {
  std::vector<IsaLevel> all;
  for (const IsaLevel level : {IsaLevel::kBaseline, IsaLevel::kAvx2, IsaLevel::kAvx512})
    if (level <= detect_cpu_features().level) all.push_back(level);
#ifdef __SANITIZE_THREAD__
  all.erase(all.begin(), all.end() - 1);
#endif
  return all;
}

}  // namespace trident
