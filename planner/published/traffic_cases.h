// Communication volumes of cases. Throws UnsupportedCase or ConfigError where the row cannot be answered.
#pragma once

#include "planner/published/case_row.h"

namespace trident {

// Answers for whichever of tensor, pipeline, data, context parallelism or bus bandwidth the row gives the letters.
CaseQuantities traffic(CaseFields& input);

}  // namespace trident
