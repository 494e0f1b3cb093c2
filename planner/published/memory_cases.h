// Memory and parameter counts of cases. Each throws UnsupportedCase or ConfigError where the row cannot be answered.
#pragma once

#include "planner/published/case_row.h"

namespace trident {

// These count the model that the row describes, as Trident builds it (model/config/model_stats.h), or the closed form when
// the row gives widths and a sequence alone.
CaseQuantities count_parameters(CaseFields& config);
CaseQuantities model_states(CaseFields& config);
CaseQuantities checkpoint_size(CaseFields& config);
CaseQuantities layer_activations(CaseFields& config);
CaseQuantities first_stage_activations(CaseFields& config);
CaseQuantities first_stage_total(CaseFields& config);
CaseQuantities activation_ratios(CaseFields& config);
CaseQuantities activation_extras(CaseFields& config);
CaseQuantities most_loaded_rank(CaseFields& config);

}  // namespace trident
