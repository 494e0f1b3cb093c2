// The part of check_step_programs that looks at one rank alone.
#pragma once

#include <string>

#include "pipeline/schedule/step_program.h"

namespace trident {

// Runs `program` symbolically as the program of pipeline rank `rank`. Throws InternalError at the first broken rule.
void check_rank_program(const StepProgram& program, int rank, const StepProgramSpec& spec);

// "rank 1, instruction 17:", a few instructions around it, and an arrow below it.
std::string show_instruction(const StepProgram& program, std::size_t position);

}  // namespace trident
