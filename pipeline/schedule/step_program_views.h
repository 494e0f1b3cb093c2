// Step programs that get prices and are not run.
#pragma once

#include <vector>

#include "pipeline/schedule/step_program.h"

namespace trident {

// As build_step_programs(), but for the receives: when they are posted depends on the whole schedule, and no time and no other call
// depends on it.
std::vector<StepProgram> build_programs_for_pricing(const StepProgramSpec& spec);

}  // namespace trident
