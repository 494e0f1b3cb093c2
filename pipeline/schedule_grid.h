// A schedule as a picture: one row per rank, one column per time slot.
#pragma once

#include <string>

#include "pipeline/schedule.h"

namespace trident {

// Simulated with F, I and W taking one slot and B two; '.' is idle, '-' continues the action to its left:
//   rank 0 | 0F0 0F1 .   .   0B0 --- .   0B1 ---
//   rank 1 | .   1F0 1B0 --- 1F1 1B1 --- .   .
std::string to_grid(const Schedule& schedule);

}  // namespace trident
