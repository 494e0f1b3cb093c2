// The update rule that a configuration asks for.
#pragma once

#include <memory>

#include "optim/update_rule.h"
#include "train/config/train_config.h"

namespace trident {

std::unique_ptr<const UpdateRule> update_rule_of(const TrainConfig& config);

}  // namespace trident
