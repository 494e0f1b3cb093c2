// One training step as a static list of instructions per pipeline rank: the schedule, unit by unit, with its messages and with
// ZeRO woven in. Executor, simulator, memory plan and checker all read this list; nothing else decides order.
//
// All data- and tensor-parallel ranks of a pipeline rank run the same list. Their collectives therefore have one order, and the
// pipeline may be reasoned about as if each of its ranks were a single one.
//
// A step runs on a rank in this order:
//   per micro-batch   RecvActivation, Forward per unit, SendActivation; RecvGradient, Backward per unit in reverse, SendGradient;
//                     Gather before and Free after the computes that need sharded parameters;
//                     ReduceGradients right after the backward that completes a unit's gradient, so that it overlaps the next
//   once              TieExchange, GradNorm, then per unit in order of next use: OptimizerStep, Gather (resident parameters)
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/at.h"
#include "core/named_enum.h"
#include "core/zero_policy.h"
#include "pipeline/schedule/partition.h"
#include "pipeline/schedule/schedule.h"

namespace trident {

enum class InstructionKind : std::uint8_t {
  kForward,
  kBackward,
  kBackwardInput,
  kBackwardWeight,  // unit, virtual_stage, micro_batch, gather_place
  kSendActivation,
  kRecvActivation,
  kSendGradient,
  kRecvGradient,  // virtual_stage (own), micro_batch, peer; Recv: receive_slot
  kGather,
  kFree,             // unit, gather_place
  kReduceGradients,  // unit, grad_place
  kTieExchange,      // peer
  kGradNorm,
  kOptimizerStep,  // unit
};
// Traces group instructions by these.
template <>
inline constexpr std::array<std::string_view, 14> kNamesOf<InstructionKind>{
    "forward", "backward", "backward_input", "backward_weight", "send_activation", "recv_activation", "send_gradient",
    "recv_gradient", "gather", "free", "reduce", "tie_exchange", "grad_norm", "optimizer"};

struct Instruction {
  static constexpr int kNone = -1;
  static constexpr std::uint8_t kOverwrite = 1, kLast = 2;

  InstructionKind kind = InstructionKind::kForward;
  int unit = kNone;
  int virtual_stage = kNone;
  int micro_batch = kNone;
  // Sends and receives, tie exchange: the other pipeline rank; this rank itself for a tie within the rank (a local addition).
  int peer = kNone;
  // Computes, Gather, Free: where in the region of gathered parameters, in blocks of kPlaceBytes; kNone: they are resident, or
  // not read.
  int gather_place = kNone;
  // RecvActivation, RecvGradient: the receive buffer, its own until the first compute that reads it has run.
  int receive_slot = kNone;
  // Backwards, ReduceGradients: where in the region of transient gradients, likewise; kNone: the unit has its own, which
  // accumulates across micro-batches.
  int grad_place = kNone;
  std::uint8_t flags = 0;

  // Backwards: the first contribution since the last reduction; it overwrites the gradient buffer instead of adding to it.
  bool overwrites() const { return (flags & kOverwrite) != 0; }
  // ReduceGradients: the last one of this unit in this step; its result is the gradient of the global batch.
  bool last() const { return (flags & kLast) != 0; }
  bool is_forward() const { return kind == InstructionKind::kForward; }
  bool is_compute() const { return kind <= InstructionKind::kBackwardWeight; }
  bool computes_input_gradient() const { return kind == InstructionKind::kBackward || kind == InstructionKind::kBackwardInput; }
  bool computes_weight_gradient() const { return kind == InstructionKind::kBackward || kind == InstructionKind::kBackwardWeight; }
  bool is_send() const { return kind == InstructionKind::kSendActivation || kind == InstructionKind::kSendGradient; }
  bool is_receive() const { return kind == InstructionKind::kRecvActivation || kind == InstructionKind::kRecvGradient; }

  bool operator==(const Instruction&) const = default;
};

inline constexpr std::int64_t kPlaceBytes = 256;  // as ranges of an arena are aligned

// A unit's bytes on a rank, each rounded up to whole kPlaceBytes but the shard.
struct UnitBytes {
  std::int64_t gathered = kPlaceBytes;   // its parameters in the compute dtype
  std::int64_t gradients = kPlaceBytes;  // in f32
  // The parameters that the rank holds when they are resident (a tied weight with both ends here lies with the embedding), and
  // what it holds for gathers to send when they are not.
  std::int64_t resident = 0, shard = 0;
};

struct StepProgramSpec {
  Schedule schedule;  // checked; a forward-only schedule makes an evaluation program: no reductions, no update
  UnitsOfStage units_of_stage;
  ZeroPolicy zero;
  int data_parallel = 1;  // N, the ranks that share parameters; with 1 nothing is gathered
  // The embedding unit and the head unit share a weight. Each has a gradient buffer of its own (lookup and head gradient), reduced
  // over data parallel like any other; TieExchange then leaves lookup + head, added in this order, at both ends. Where one rank
  // holds both ends, the weight is stored once, with the embedding; Gather(head) copies it into the head's slot as well.
  bool tied = false;
  // Gathers are issued one compute early, receives are posted before the action during which they arrive, and transient gradient
  // buffers come in pairs, so that a reduction may run during the next unit's backward.
  bool overlap = true;
  // By unit. Empty: a block each, and ranks gather as the policy says whatever that takes.
  std::vector<UnitBytes> unit_bytes;
  // By rank, of an evaluation: StepProgram::gathers_on_use of the training that it shares memory with. Empty: to be decided.
  std::vector<bool> gathers_on_use;
  // By unit, where the schedule splits backwards: whether its weight gradient reads parameters. Empty: all do.
  std::vector<bool> weight_gradient_reads = {};

  // By unit: whether any of its parameters trains. Empty: all do.
  std::vector<bool> trained = {};
  // The first unit of which some do. Units below it run no backward: nobody sends them gradients, and they keep nothing for it. The
  // schedule has actions for them all the same, whose order paces them.
  int lowest_trained = 0;

  bool trains(int unit) const { return trained.empty() || at(trained, unit); }
  bool runs_backward(int unit) const { return unit >= lowest_trained; }
  // Counts a virtual stage's units that run backwards.
  int num_backward_units(int virtual_stage) const {
    const std::vector<int>& units = at(units_of_stage, virtual_stage);
    return std::max(0, units.back() + 1 - std::max(units.front(), lowest_trained));
  }
  bool reads_parameters(const Instruction& compute) const {
    return compute.kind != InstructionKind::kBackwardWeight || weight_gradient_reads.empty() ||
           at(weight_gradient_reads, compute.unit);
  }
  int embedding_unit() const { return units_of_stage.front().front(); }
  int head_unit() const { return units_of_stage.back().back(); }
  int embedding_rank() const { return 0; }
  int head_rank() const { return schedule.num_ranks - 1; }
  // Whether gradients are reduced after micro-batch `mb`: every grad_sync_every-th, and the last.
  bool reduces_after(int mb) const;
  int reductions_per_unit() const;  // ceil(m/k), 1 for k = 0
};

struct StepProgram {
  int rank = 0;
  std::vector<Instruction> instructions;
  std::vector<int> units;  // this rank's, in the order of their first forward

  // Whether parameters are complete only where this rank uses them, in a region of `gather_bytes`. Otherwise they are resident:
  // the policy says so, or the region and the shards would take no less, and nothing is won by gathering more than once a step.
  bool gathers_on_use = false;
  bool gathers_after_update = false;
  std::vector<UnitBytes> unit_bytes;  // by unit
  // The regions that gathered parameters and transient gradients share, and what gathers on use would take where they are resident.
  std::int64_t gather_bytes = 0, grad_bytes = 0;

  // Buffers the program needs; each count is minimal for the order of the instructions.
  int num_activation_receive_slots = 0;
  int num_gradient_receive_slots = 0;
  // Indexed by chunk: how many micro-batches hold activations at once (a block of activation memory each), and which block
  // each micro-batch uses: from its first F to its last I, and, of what weight gradients read, to its last W. The two are the same
  // where backwards are not split.
  std::vector<int> num_activation_slots;
  std::vector<std::vector<int>> activation_slots;
  std::vector<int> num_weight_slots;
  std::vector<std::vector<int>> weight_slots;
  // Likewise what a micro-batch's input gradients leave for its weight gradients, from its first I to its last W. A backward that
  // is not split needs none.
  std::vector<int> num_kept_slots;
  std::vector<std::vector<int>> kept_slots;
  int num_ranks = 1;

  int activation_slot(int virtual_stage, int micro_batch) const {
    return activation_slots.at(static_cast<std::size_t>(virtual_stage / num_ranks)).at(static_cast<std::size_t>(micro_batch));
  }
  int weight_slot(int virtual_stage, int micro_batch) const {
    return weight_slots.at(static_cast<std::size_t>(virtual_stage / num_ranks)).at(static_cast<std::size_t>(micro_batch));
  }
  int kept_slot(int virtual_stage, int micro_batch) const {
    return kept_slots.at(static_cast<std::size_t>(virtual_stage / num_ranks)).at(static_cast<std::size_t>(micro_batch));
  }
  bool has(InstructionKind kind) const;
};

// The programs of all pipeline ranks. Throws ConfigError naming `parallel.grad_sync` if gradients are to be reduced between
// micro-batches while the schedule splits backward into I and W (the next micro-batch's I would meet an unreduced gradient).
std::vector<StepProgram> build_step_programs(const StepProgramSpec& spec);

// "gather(u3)@1": unit 3 into slot 1; "B(u3,m0)@1=g0": backward, micro-batch 0, overwriting gradient buffer 0 ("+=" adds; no
// buffer number: the unit's own); "reduce(u3)g0!": the last reduction of the step; "recv_act(s2,m0)<1@0": the input of virtual
// stage 2, from rank 1, into receive buffer 0.
std::string to_string(const Instruction& instruction);
// "forward u3 m0": for traces and profilers; the same for the same work of every rank and step.
std::string short_name(const Instruction& instruction);
std::string to_text(const StepProgram& program);  // "rank 0: ...", wrapped at 128 columns

// Programs are lists that every rank keeps; so many passes through a unit take seconds to lay out and check.
inline constexpr std::int64_t kMostPasses = 1 << 20;

// Micro-batches of a step that a model of so many units can have on a data-parallel rank; at least one.
constexpr std::int64_t most_micro_batches(std::int64_t units) { return std::max<std::int64_t>(1, kMostPasses / units); }

// As build_step_programs(), but for the receives: when they are posted depends on the whole schedule, and no price
// depends on it.
std::vector<StepProgram> build_programs_for_pricing(const StepProgramSpec& spec);

}  // namespace trident
