// Schedules read from text, and drawn.
#pragma once

#include <string>
#include <string_view>

#include "pipeline/schedule/schedule.h"

namespace trident {

// The inverse of to_text(). Checks the form only; whether the schedule makes sense is schedule_check's business.
// Throws ConfigError naming rank and column (both from 0) and the text found there.
Schedule parse_schedule(std::string_view text);

// One row per rank, one column per time slot. Simulated with F, I and W taking one slot and B two; '.' is idle, '-' continues the
// action to its left:
//   rank 0 | 0F0 0F1 .   .   0B0 --- .   0B1 ---
//   rank 1 | .   1F0 1B0 --- 1F1 1B1 --- .   .
std::string to_grid(const Schedule& schedule);

}  // namespace trident
