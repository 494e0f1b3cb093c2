// A layout's step with few micro-batches written out, for the simulator.
#pragma once

#include "plan/search_space.h"
#include "plan/step_price.h"
#include "train/forecast/layout_costs.h"

namespace trident {

// Of a trainable layout: what LayoutCosts::step() gives, as short as its schedule allows.
LoopedStep looped_step(LayoutCosts& costs, const SearchLayout& layout);

}  // namespace trident
