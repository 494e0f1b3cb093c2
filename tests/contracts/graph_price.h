// A step priced by the graph of all its instructions (tests/contracts/instruction_graph.h), an event after the other: what
// price_step() is compared with, whose ranks run on their own.
#pragma once

#include "planner/price/step_price.h"

namespace trident::contracts {

// Times, spans and parts; bubble_over_ideal is left out.
StepPrice price_by_graph(const RecordedStep& step, const WorkPrices& prices);

}  // namespace trident::contracts
