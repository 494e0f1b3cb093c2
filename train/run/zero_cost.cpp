#include "train/run/zero_cost.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/number_text.h"
#include "model/config/model_stats.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

std::int64_t state_bytes(const ArenaPlan& arena) {
  std::int64_t bytes = 0;
  for (const MemoryUse use : {MemoryUse::kParameters, MemoryUse::kGradients, MemoryUse::kOptimizer})
    bytes += arena.total_bytes(use);
  return bytes;
}

// The sum over all ranks.
double model_state(const RunPlan& plan, const ZeroPolicy& policy) {
  const double replicas = static_cast<double>(plan.world_size() / plan.grid.degrees().pipeline);
  double bytes = 0;
  for (const DryRun& run : dry_stages(with_policy(plan, policy), nullptr, DryWork::kConstruct))
    bytes += replicas * static_cast<double>(state_bytes(run.arena));
  return bytes;
}

// The most that an arena of any rank takes. Of a plan and nothing else, because all ranks must decide alike and workspaces of
// processors differ from node to node; rather too much, because ranks that reduce more often than they need to train all the same.
std::int64_t largest_arena(const RunPlan& plan, DeviceKind device) {
  std::int64_t largest = 0;
  for (const DryRun& run : dry_stages_on_any(plan, device, DryWork::kConstruct))
    largest = std::max(largest, run.arena.total_bytes());
  return largest;
}

}  // namespace

std::vector<ZeroCost> zero_costs(const RunPlan& plan, const ZeroPolicy& policy) {
  std::vector<ZeroCost> costs;
  for (const DryRun& run : dry_stages(with_policy(plan, policy), nullptr, DryWork::kStep))
    costs.push_back({run.bytes_sent[static_cast<std::size_t>(Axis::kData)], state_bytes(run.arena)});
  return costs;
}

std::string what_state_fits(const RunPlan& plan, double state, double there) {
  if (plan.step_spec.data_parallel > 1) {
    const double now = model_state(plan, plan.zero);
    for (const ZeroPreset preset : {ZeroPreset::kZero1, ZeroPreset::kZero2, ZeroPreset::kShardGradOp, ZeroPreset::kZero3}) {
      const double bytes = state * model_state(plan, policy_of(preset)) / now;
      if (bytes <= there && bytes < state)
        return fmt::format("parallel.zero = {} needs {:.1f} GB", to_string(preset), 1e-9 * bytes);
    }
  }
  return fmt::format("about {} parameters of this layout would fit",
                     parameters_text(static_cast<double>(num_parameters(plan.model)) * there / state));
}

RunPlan settle_grad_sync(RunPlan plan, const MachineFacts& machine) {
  if (plan.config.parallel.grad_sync.kind != GradSync::Kind::kAuto || plan.zero.grad_sync_every == 0) return plan;
  // Planned as if the user had asked for it, so that whatever follows from the policy is what follows from this one.
  TrainConfig config = plan.config;
  config.parallel.grad_sync = {GradSync::Kind::kStep, 0};
  RunPlan once = make_run_plan(config, plan.model, plan.world_size(), machine);
  once.config = plan.config;
  once.generation = plan.generation;
  const std::int64_t needed = largest_arena(once, machine.device), there = machine.bytes_per_rank();
  const bool fits = needed <= there;
  RunPlan settled = fits ? std::move(once) : std::move(plan);
  // Before what follows from the policy.
  settled.notes.insert(
      settled.notes.begin(),
      fmt::format("parallel.grad_sync = auto: {} (once per step, a rank needs {:.2f} GB, {:.2f} GB are there)",
                  fits ? "once per step" : "the preset's own", 1e-9 * static_cast<double>(needed),
                  1e-9 * static_cast<double>(there)));
  return settled;
}

}  // namespace trident
