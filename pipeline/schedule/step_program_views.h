// Step programs that are looked at and not run.
#pragma once

#include <vector>

#include "pipeline/schedule/step_program.h"

namespace trident {

// As build_step_programs(), with each receive right before what reads it, behind a gather that stands there: when receives are
// posted depends on the whole schedule, and no time and no other call depends on it. Run, such programs may wait for each other.
std::vector<StepProgram> build_programs_for_pricing(const StepProgramSpec& spec);

}  // namespace trident
