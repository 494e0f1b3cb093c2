// Lion as an update rule (Chen et al. 2023, algorithm 2): one state, and every element moves by the rate.
#pragma once

#include "optim/update_rule.h"

namespace trident {

std::unique_ptr<const UpdateRule> make_lion(const UpdateRuleConfig& config);

}  // namespace trident
