// Communication volume from the step programs: the formulas of docs/communication.md, instruction by instruction.

#include <algorithm>
#include <cstdint>

#include "optim/step_statistics.h"
#include "train/run_plan.h"

namespace trident {
namespace {

// Bytes one rank sends in an operation over n ranks on a buffer of `bytes` (the whole buffer for gathers and scatters).
double gather_bytes(double bytes, int n) { return bytes * (n - 1) / n; }  // all-gather, reduce-scatter
double all_reduce_bytes(double bytes, int n) { return 2 * gather_bytes(bytes, n); }

std::int64_t owned_elements(const BucketLayout& bucket, const ZeroPolicy& policy) {
  return policy.shard_optimizer ? bucket.shard_elements : bucket.elements;
}

// Tensor-parallel bytes of one rank for one compute of a unit.
class TensorBytes {
 public:
  explicit TensorBytes(const RunPlan& plan) : plan_(plan), degree_(plan.tensor_layout.degree) {
    const double rows = static_cast<double>(plan.config.batch.micro * plan.config.batch.sequence);
    activation_ = rows * static_cast<double>(plan.model.hidden * size_of(plan.compute));
    statistics_ = rows * static_cast<double>(size_of(DType::kF32));
  }

  double of(const Instruction& i) const {
    double bytes = 0;
    if (i.is_forward()) bytes += forward(i.unit);
    if (i.computes_input_gradient()) bytes += backward_input(i.unit);
    if (i.computes_weight_gradient()) bytes += backward_weight(i.unit);
    if (i.computes_input_gradient() && !i.computes_weight_gradient()) bytes += split_backward_input(i.unit);
    return bytes;
  }

 private:
  bool sequence() const { return plan_.tensor_layout.shards_sequence(); }
  bool is_embedding(int unit) const { return unit == 0; }
  bool is_head(int unit) const { return unit == head_unit(plan_.model); }
  // Entering or leaving a region whose sequence is whole: half an all-reduce under sequence parallelism.
  double half() const { return gather_bytes(activation_, degree_); }
  double whole() const { return all_reduce_bytes(activation_, degree_); }

  double forward(int unit) const {
    if (is_embedding(unit)) return sequence() ? half() : whole();
    if (is_head(unit)) {
      return (sequence() ? half() : 0) + all_reduce_bytes(statistics_, degree_) + all_reduce_bytes(2 * statistics_, degree_);
    }
    return sequence() ? 4 * half() : 2 * whole();
  }
  double backward_input(int unit) const {
    if (is_embedding(unit)) return 0;
    if (is_head(unit)) return sequence() ? half() : whole();
    double recomputed = 0;  // the attention phase again, and the feed-forward phase up to its activation
    if (plan_.recompute == RecomputePolicy::kFull) recomputed = sequence() ? 3 * half() : whole();
    return recomputed + (sequence() ? 4 * half() : 2 * whole());
  }
  double backward_weight(int unit) const {
    if (!sequence()) return 0;
    return (is_embedding(unit) || is_head(unit) ? 1 : 2) * half();  // the inputs, or the lookup's gradient, gathered again
  }

  // Logits in chunks are made again from the gathered input, once for each call of the backward pass.
  double split_backward_input(int unit) const {
    return is_head(unit) && sequence() && plan_.config.recompute.head_chunk > 0 ? half() : 0;
  }

  const RunPlan& plan_;
  int degree_;
  double activation_ = 0, statistics_ = 0;
};

double reduce_bytes(const UnitLayout& unit, const ZeroPolicy& policy, int n) {
  const double bytes = static_cast<double>(unit.elements() * size_of(DType::kF32));
  return policy.shard_optimizer ? gather_bytes(bytes, n) : all_reduce_bytes(bytes, n);
}

double partial_bytes(const UnitLayout& unit, const ZeroPolicy& policy) {
  double bytes = 0;
  for (const BucketLayout& bucket : unit.buckets) {
    for (const SubAxis& axis : bucket.partial_over) {
      bytes += all_reduce_bytes(static_cast<double>(owned_elements(bucket, policy) * size_of(DType::kF32)), axis.size);
    }
  }
  return bytes;
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

double tied_bytes(const RunPlan& plan) {
  for (const BucketLayout& bucket : plan.units.front().buckets) {
    if (bucket.tie != TiedEnd::kNone) {
      return static_cast<double>(owned_elements(bucket, plan.zero) * size_of(DType::kF32));
    }
  }
  return 0;
}

}  // namespace

std::array<double, kNumAxes> step_bytes_sent(const RunPlan& plan) {
  const ParallelDegrees& degrees = plan.grid.degrees();
  const int n = degrees.data * degrees.context;
  const TensorBytes tensor(plan);
  const Shape activation = plan.geometry(0).activation_shape(plan.model.hidden);
  const double boundary = static_cast<double>(activation.num_elements() * size_of(plan.compute));
  double tp = 0, dp = 0, pp = 0;  // of one rank of every pipeline rank
  for (const StepProgram& program : plan.step_programs) {
    for (const Instruction& i : program.instructions) {
      if (i.is_compute()) tp += tensor.of(i);
      if (i.is_send()) pp += boundary;
      if (i.kind == InstructionKind::kTieExchange && i.peer != program.rank) pp += tied_bytes(plan);
      if (i.kind == InstructionKind::kGather) {
        dp += gathered_bytes(plan, plan.units[static_cast<std::size_t>(i.unit)], plan.zero, n);
      }
      if (i.kind == InstructionKind::kReduceGradients) {
        const UnitLayout& unit = plan.units[static_cast<std::size_t>(i.unit)];
        dp += reduce_bytes(unit, plan.zero, n);
        if (i.last()) tp += partial_bytes(unit, plan.zero);
      }
    }
  }
  const double replicas = static_cast<double>(degrees.tensor) * n;  // ranks that run the same program
  const double world = static_cast<double>(plan.world_size());
  const double statistics = static_cast<double>(StatisticsReducer::exchanged_bytes());
  const auto exchange = [&](int ranks) { return world * all_reduce_bytes(statistics, ranks); };
  return {replicas * tp + exchange(degrees.tensor), exchange(degrees.context), replicas * dp + exchange(degrees.data),
          replicas * pp + exchange(degrees.pipeline)};
}

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
