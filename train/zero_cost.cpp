// What a ZeRO policy costs a rank, from the step program alone: cheap enough to compare policies by.

#include <algorithm>
#include <cstdint>

#include "train/run_plan.h"

namespace trident {
namespace {

// Bytes one rank sends in an operation over n ranks on a buffer of `bytes` (the whole buffer for gathers and scatters).
double gather_bytes(double bytes, int n) { return bytes * (n - 1) / n; }  // all-gather, reduce-scatter
double all_reduce_bytes(double bytes, int n) { return 2 * gather_bytes(bytes, n); }

double reduce_bytes(const UnitLayout& unit, const ZeroPolicy& policy, int n) {
  const double bytes = static_cast<double>(unit.elements() * size_of(DType::kF32));
  return policy.shard_optimizer ? gather_bytes(bytes, n) : all_reduce_bytes(bytes, n);
}

// Elements of a unit whose weight is the embedding's: the head's tied weight where one rank holds both ends.
std::int64_t shared_elements(const RunPlan& plan, const UnitLayout& unit) {
  if (plan.grid.degrees().pipeline > 1 || unit.unit != head_unit(plan.model)) return 0;
  std::int64_t elements = 0;
  for (const BucketLayout& bucket : unit.buckets) {
    if (bucket.tie != TiedEnd::kNone) elements += bucket.elements;
  }
  return elements;
}

double gathered_bytes(const RunPlan& plan, const UnitLayout& unit, const ZeroPolicy& policy, int n) {
  const std::int64_t shared = policy.param_gather == ParamGather::kResident ? shared_elements(plan, unit) : 0;
  return gather_bytes(static_cast<double>((unit.elements() - shared) * size_of(plan.compute)), n);
}

}  // namespace

ZeroCost zero_cost(const RunPlan& plan, const ZeroPolicy& policy, int pp) {
  StepProgramSpec spec = plan.step_spec;
  spec.zero = policy;
  const StepProgram program = build_step_programs(spec)[static_cast<std::size_t>(pp)];
  const int n = spec.data_parallel;
  const bool sharded = policy.shard_optimizer && n > 1, gathers = spec.gathers_in_step();
  ZeroCost cost;
  for (const Instruction& i : program.instructions) {
    if (i.kind != InstructionKind::kGather && i.kind != InstructionKind::kReduceGradients) continue;
    const UnitLayout& unit = plan.units[static_cast<std::size_t>(i.unit)];
    cost.bytes_sent += i.kind == InstructionKind::kGather ? gathered_bytes(plan, unit, policy, n) : reduce_bytes(unit, policy, n);
  }
  std::int64_t elements = 0, shared = 0, largest = 0;
  for (const int unit : program.units) {
    const UnitLayout& layout = plan.units[static_cast<std::size_t>(unit)];
    elements += layout.elements();
    shared += shared_elements(plan, layout);
    largest = std::max(largest, layout.elements());
  }
  const std::int64_t parts = sharded ? n : 1, owned = (elements - shared) / parts;
  const std::int64_t w = size_of(plan.compute), f32 = size_of(DType::kF32);
  const std::int64_t master = plan.compute == DType::kF32 ? 0 : owned * f32;
  cost.memory = master + 2 * owned * f32;                                                     // master and moments
  cost.memory += gathers ? owned * w + program.num_gather_slots * largest * w : (elements - shared) * w;  // parameters
  cost.memory += program.num_grad_slots > 0 ? program.num_grad_slots * largest * f32 : elements * f32;
  if (policy.grad_sync_every > 0) cost.memory += elements / parts * f32;
  return cost;
}

}  // namespace trident
