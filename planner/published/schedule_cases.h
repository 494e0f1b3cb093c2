// Bubbles and memory of pipeline schedules in cases. Each throws UnsupportedCase or ConfigError where the row cannot be
// answered.
#pragma once

#include "planner/published/case_row.h"

namespace trident {

// bubble_rate, and cost_ms where the row gives times. Missing times are those of typical published layers, relative to a forward.
CaseQuantities bubble_rate(CaseFields& input);
// makespan, largest_stage_time, bubble_units (idle time of the rank with the largest span), bubble_over_ideal, bubble_rate.
CaseQuantities schedule_times(CaseFields& input);

// per_stage: micro-batches, or chunks where a rank has several, that each rank holds at once.
CaseQuantities in_flight(CaseFields& config);
// peak_activation_relative_to_1f1b, of a pipeline of 32 ranks where the row names none.
CaseQuantities relative_activations(CaseFields& config);

}  // namespace trident
