// AdamW as an update rule (Loshchilov and Hutter 2019, algorithm 2).
#pragma once

#include "optim/update_rule.h"

namespace trident {

class AdamWRule final : public UpdateRule {
 public:
  explicit AdamWRule(const UpdateRuleConfig& config) : config_(config) {}
  std::span<const UpdateState> states() const override;
  UpdateCut cut() const override { return UpdateCut::kElement; }
  void update(Ops& ops, Stream& stream, const UpdateElements& elements, const UpdateStep& step) const override;

 private:
  UpdateRuleConfig config_;
};

}  // namespace trident
