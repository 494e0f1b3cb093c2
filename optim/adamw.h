// AdamW as an update rule (Loshchilov and Hutter 2019, algorithm 2).
#pragma once

#include "optim/update_rule.h"

namespace trident {

std::unique_ptr<const UpdateRule> make_adamw(const UpdateRuleConfig& config);

}  // namespace trident
