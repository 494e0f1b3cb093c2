// Lion as an update rule (Chen et al. 2023, algorithm 2): one state, and every element moves by the rate.
#pragma once

#include "optim/update_rule.h"

namespace trident {

class LionRule final : public UpdateRule {
 public:
  explicit LionRule(const UpdateRuleConfig& config) : config_(config) {}
  std::span<const UpdateState> states() const override;
  UpdateCut cut() const override { return UpdateCut::kElement; }
  void update(Ops& ops, Stream& stream, const UpdateElements& elements, const UpdateStep& step) const override;

 private:
  UpdateRuleConfig config_;
};

}  // namespace trident
