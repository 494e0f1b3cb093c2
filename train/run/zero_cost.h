// The costs of ZeRO policies, and the choices made by them. The plan with a policy is run dry.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/plan/run_plan.h"

namespace trident {

// By pipeline stage: bytes that one of its ranks sends over dp in a step, and holds for parameters, gradients and optimizer, under
// `policy`.
struct ZeroCost {
  double bytes_sent = 0;
  std::int64_t memory = 0;
};
std::vector<ZeroCost> zero_costs(const RunPlan& plan, const ZeroPolicy& policy);

// Proposes what fits where parameters, gradients and optimizer of some ranks need `state` bytes and `there` are there: the first
// ZeRO preset that does, or a number of parameters.
std::string what_state_fits(const RunPlan& plan, double state, double there);

// Decides parallel.grad_sync "auto", which make_run_plan(.., machine) left open, and adds a note of it: once a step if the whole
// arena of every stage's ranks then fits into machine.bytes_per_rank(), else the preset's own. The arena is that of
// dry_stages_on_gpus(), so that ranks on different processors decide alike. Any other plan comes back as it was.
RunPlan settle_grad_sync(RunPlan plan, const MachineFacts& machine);

}  // namespace trident
