// A layout's step with few micro-batches written out, for the simulator.
#pragma once

#include "planner/price/step_price.h"
#include "planner/search/layout_costs.h"
#include "planner/search/search_space.h"

namespace trident {

// Of a trainable layout: what LayoutCosts::step() gives, as short as its schedule allows.
LoopedStep looped_step(LayoutCosts& costs, const SearchLayout& layout);

}  // namespace trident
