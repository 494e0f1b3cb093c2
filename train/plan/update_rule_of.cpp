#include "train/plan/update_rule_of.h"

namespace trident {

std::unique_ptr<const UpdateRule> update_rule_of(const TrainConfig& config) {
  const OptimizerConfig& o = config.optimizer;
  return make_update_rule({.kind = o.type,
                           .betas = o.betas,
                           .eps = o.eps,
                           .weight_decay = o.weight_decay});
}

}  // namespace trident
