// A rank's record put together from what single units call: equal in every price to the record of its dry run.
#pragma once

#include "pipeline/schedule/step_program.h"
#include "planner/search/unit_costs.h"
#include "train/plan/step_record.h"

namespace trident {

// The pass with its calls along the pipeline over `pipeline` ranks.
PassRecord over_pipeline(PassRecord pass, int pipeline);

StepRecord make_record(const StepProgram& program, const StepProgramSpec& spec, const UnitPasses& passes, const StorePasses& stores,
                       int pipeline);

}  // namespace trident
