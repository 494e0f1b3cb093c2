// What a ZeRO policy costs: the plan with that policy, run dry.

#include <cstdint>

#include "train/plan/run_plan.h"
#include "train/run/dry_run.h"

namespace trident {

std::vector<ZeroCost> zero_costs(const RunPlan& plan, const ZeroPolicy& policy) {
  std::vector<ZeroCost> costs;
  for (const DryRun& run : dry_stages(with_policy(plan, policy), nullptr, DryWork::kStep)) {
    ZeroCost& cost = costs.emplace_back(ZeroCost{run.bytes_sent[static_cast<std::size_t>(Axis::kData)], 0});
    for (const MemoryUse use : {MemoryUse::kParameters, MemoryUse::kGradients, MemoryUse::kOptimizer})
      cost.memory += run.arena.total_bytes(use);
  }
  return costs;
}

}  // namespace trident
