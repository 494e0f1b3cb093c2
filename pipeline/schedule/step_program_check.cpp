#include "pipeline/schedule/step_program_check.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/at.h"
#include "core/check.h"
#include "core/index_range.h"
#include "pipeline/schedule/channel_check.h"
#include "pipeline/schedule/schedule_simulator.h"

namespace trident {
namespace {

using Kind = InstructionKind;
using Fault = std::optional<std::string>;

constexpr Fault kFine = std::nullopt;

// "rank 1, instruction 17:", a few instructions around it, and an arrow below it.
std::string show_instruction(const StepProgram& program, std::size_t position) {
  constexpr std::size_t kAround = 4;
  const std::size_t first = position - std::min(position, kAround);
  const std::size_t end = std::min(position + kAround + 1, program.instructions.size());
  std::string line = first > 0 ? "  ..." : "  ", arrow;
  for (std::size_t i = first; i < end; ++i) {
    line += ' ';
    if (i == position) arrow = std::string(line.size(), ' ') + '^';
    line += to_string(program.instructions[i]);
  }
  if (end < program.instructions.size()) line += " ...";
  return fmt::format("rank {}, instruction {}:\n{}\n{}", program.rank, position, line, arrow);
}

// One pass of one micro-batch through one virtual stage.
struct Passage {
  std::size_t forwards = 0, input_gradients = 0, weight_gradients = 0;  // units done
  bool activation_sent = false, gradient_sent = false;
  std::optional<int> activation_received, gradient_received;  // receive buffer, until it is read
};

struct UnitState {
  int input_gradients = 0, weight_gradients = 0;  // micro-batches done
  int unreduced = 0;                // of them, since the last reduction
  int reductions = 0;
  bool stepped = false, gathered_after_step = false;
};

// The ranges of a region that are taken, and by what.
class TakenPlaces {
 public:
  static bool fits(int slot, std::int64_t bytes, std::int64_t region) { return slot >= 0 && slot * kPlaceBytes + bytes <= region; }
  bool holds(int unit, int slot) const {
    const auto it = taken_.find(unit);
    return it != taken_.end() && it->second.begin == slot * kPlaceBytes;
  }
  // The unit that is in the way, if there is one.
  std::optional<int> add(int unit, int slot, std::int64_t bytes) {
    const IndexRange range{slot * kPlaceBytes, slot * kPlaceBytes + bytes};
    for (const auto& [other, taken] : taken_)
      if (other == unit || taken.meets(range)) return other;
    taken_[unit] = range;
    return std::nullopt;
  }
  void remove(int unit) { taken_.erase(unit); }
  bool empty() const { return taken_.empty(); }
  int first() const { return taken_.begin()->first; }

 private:
  std::map<int, IndexRange> taken_;  // by unit
};

// Slots of micro-batches from their forward on, by virtual stage.
class HeldSlots {
 public:
  explicit HeldSlots(std::string_view name) : name_(name) {}
  std::string_view name() const { return name_; }
  Fault take(int virtual_stage, int slot, int of) {
    if (slot < 0 || slot >= of) return fmt::format("no such {} slot: {}", name_, slot);
    std::set<int>& slots = in_use_[virtual_stage];
    if (!slots.insert(slot).second) return fmt::format("{} slot {} is still in use", name_, slot);
    int& peak = peak_[virtual_stage];
    peak = std::max(peak, static_cast<int>(slots.size()));
    return kFine;
  }
  void give_back(int virtual_stage, int slot) { in_use_[virtual_stage].erase(slot); }
  int peak(int virtual_stage) { return peak_[virtual_stage]; }

 private:
  std::string_view name_;
  std::map<int, std::set<int>> in_use_;
  std::map<int, int> peak_;
};

class RankChecker {
 public:
  RankChecker(const StepProgram& program, int rank, const StepProgramSpec& spec)
      : program_(program), rank_(rank), spec_(spec), schedule_(spec.schedule), training_(!spec.schedule.forward_only()) {
    for (int stage = rank; stage < schedule_.num_virtual_stages(); stage += schedule_.num_ranks)
      for (const int unit : units_of(stage)) units_[unit];
  }

  void run() {
    for (std::size_t at = 0; at < program_.instructions.size(); ++at) {
      const Fault fault = visit(program_.instructions[at]);
      if (fault) throw InternalError(fmt::format("broken step program: {}\n{}", *fault, show_instruction(program_, at)));
    }
    const Fault fault = visit_end();
    if (fault) throw InternalError(fmt::format("broken step program: rank {}, at its end: {}", rank_, *fault));
  }

 private:
  const std::vector<int>& units_of(int stage) const { return at(spec_.units_of_stage, stage); }
  bool mine(int stage) const {
    return stage >= 0 && stage < schedule_.num_virtual_stages() && schedule_.rank_of(stage) == rank_;
  }
  // Whether `stage` exists and lives on another rank, that is, whether a message crosses the boundary.
  bool elsewhere(int stage) const {
    return stage >= 0 && stage < schedule_.num_virtual_stages() && schedule_.rank_of(stage) != rank_;
  }
  Passage& passage(int stage, int mb) { return passages_[{stage, mb}]; }
  std::size_t backward_units(int stage) const { return static_cast<std::size_t>(spec_.num_backward_units(stage)); }
  bool forward_done(int stage, int mb) { return passage(stage, mb).forwards == units_of(stage).size(); }
  bool input_gradient_done(int stage, int mb) { return passage(stage, mb).input_gradients == backward_units(stage); }

  Fault visit(const Instruction& i) {
    if (i.unit != Instruction::kNone && units_.count(i.unit) == 0) return fmt::format("unit {} lives on another rank", i.unit);
    if (i.virtual_stage != Instruction::kNone && !mine(i.virtual_stage)) return "its virtual stage lives on another rank";
    if (i.is_compute()) return visit_compute(i);
    if (i.is_send()) return visit_send(i);
    if (i.is_receive()) return visit_receive(i);
    switch (i.kind) {
      case Kind::kGather: return normed_ ? visit_final_gather(i) : visit_gather(i);
      case Kind::kFree: return visit_free(i);
      case Kind::kReduceGradients: return visit_reduce(i);
      case Kind::kTieExchange: return visit_tie(i);
      case Kind::kGradNorm: return visit_norm();
      default: return visit_step(i);
    }
  }

  // --- Computes.

  Fault visit_compute(const Instruction& i) {
    if (normed_) return "computes after the norm";
    if (i.micro_batch < 0 || i.micro_batch >= schedule_.num_micro_batches) return "no such micro-batch";
    if ((program_.gathers_on_use && spec_.reads_parameters(i)) != (i.gather_place != Instruction::kNone))
      return "parameters are either resident or in a place, by policy";
    if (i.gather_place != Instruction::kNone && !gathered_.holds(i.unit, i.gather_place))
      return fmt::format("unit {} is not in place {}", i.unit, i.gather_place);
    Passage& p = passage(i.virtual_stage, i.micro_batch);
    if (i.is_forward()) return visit_forward(i, p);
    if (!training_) return "an evaluation has no backward";
    Fault fault = kFine;
    if (i.computes_input_gradient()) fault = visit_input_gradient(i, p);
    if (!fault && i.computes_weight_gradient()) fault = visit_weight_gradient(i, p);
    return fault;
  }

  Fault visit_forward(const Instruction& i, Passage& p) {
    const auto& units = units_of(i.virtual_stage);
    if (p.forwards == units.size() || units[p.forwards] != i.unit) return "units run forward once, in model order";
    if (p.forwards++ > 0) return kFine;
    if (training_ && backward_units(i.virtual_stage) > 0) {
      const int stage = i.virtual_stage, mb = i.micro_batch;
      const auto chunk = static_cast<std::size_t>(schedule_.chunk_of(stage));
      Fault fault = activations_.take(stage, program_.activation_slot(stage, mb), program_.num_activation_slots[chunk]);
      if (!fault) fault = weight_inputs_.take(stage, program_.weight_slot(stage, mb), program_.num_weight_slots[chunk]);
      if (fault) return fault;
    }
    if (i.virtual_stage == 0) return kFine;
    if (!elsewhere(i.virtual_stage - 1))
      return forward_done(i.virtual_stage - 1, i.micro_batch) ? kFine : Fault("the stage before has not run");
    return take(p.activation_received, activation_buffers_);
  }

  Fault visit_input_gradient(const Instruction& i, Passage& p) {
    const auto& units = units_of(i.virtual_stage);
    if (p.forwards != units.size()) return "its forward has not run";
    if (p.input_gradients == backward_units(i.virtual_stage) || units[units.size() - 1 - p.input_gradients] != i.unit)
      return "units run backward once, against model order";
    if (units_.at(i.unit).input_gradients++ != i.micro_batch) return "input gradients run in ascending micro-batch order";
    if (i.kind == Kind::kBackwardInput) {  // gradients of norms are computed here; there is one reduction
      if (spec_.trains(i.unit) && i.overwrites() != (i.micro_batch == 0))
        return "the first gradient of the step overwrites, the others add";
      const int chunk = schedule_.chunk_of(i.virtual_stage), slot = program_.kept_slot(i.virtual_stage, i.micro_batch);
      if (slot < 0 || slot >= at(program_.num_kept_slots, chunk)) return fmt::format("no such kept slot: {}", slot);
      if (p.input_gradients == 0 && !kept_slots_.insert({chunk, slot}).second)
        return fmt::format("kept slot {} is still in use", slot);
    }
    if (++p.input_gradients == backward_units(i.virtual_stage))
      activations_.give_back(i.virtual_stage, program_.activation_slot(i.virtual_stage, i.micro_batch));
    if (p.input_gradients > 1 || i.virtual_stage + 1 == schedule_.num_virtual_stages()) return kFine;
    if (!elsewhere(i.virtual_stage + 1))
      return input_gradient_done(i.virtual_stage + 1, i.micro_batch) ? kFine : Fault("the stage after has not run backward");
    return take(p.gradient_received, gradient_buffers_);
  }

  Fault visit_weight_gradient(const Instruction& i, Passage& p) {
    const auto& units = units_of(i.virtual_stage);
    if (p.weight_gradients >= p.input_gradients || units[units.size() - 1 - p.weight_gradients] != i.unit)
      return "weight gradients follow input gradients, against model order";
    if (++p.weight_gradients == backward_units(i.virtual_stage)) {
      if (i.kind == Kind::kBackwardWeight)
        kept_slots_.erase({schedule_.chunk_of(i.virtual_stage), program_.kept_slot(i.virtual_stage, i.micro_batch)});
      weight_inputs_.give_back(i.virtual_stage, program_.weight_slot(i.virtual_stage, i.micro_batch));
    }
    UnitState& unit = units_.at(i.unit);
    if (unit.weight_gradients++ != i.micro_batch) return "weight gradients are summed in ascending micro-batch order";
    if (!spec_.trains(i.unit)) return i.grad_place == Instruction::kNone ? kFine : Fault("a frozen unit has no gradient");
    if (i.overwrites() != (unit.unreduced++ == 0)) return "the first gradient after a reduction overwrites, the others add";
    const bool transient = spec_.zero.grad_sync_every == 1;
    if (transient != (i.grad_place != Instruction::kNone))
      return "gradients are transient exactly if reduced after every micro-batch";
    if (!transient) return kFine;
    if (!unreduced_.fits(i.grad_place, bytes_of(i.unit).gradients, program_.grad_bytes)) return "no such gradient buffer";
    if (unreduced_.add(i.unit, i.grad_place, bytes_of(i.unit).gradients)) return "its gradient buffer holds an unreduced gradient";
    return kFine;
  }

  static Fault take(std::optional<int>& received, std::set<int>& buffers) {
    if (!received) return "its input was not received";
    buffers.erase(*received);
    received.reset();
    return kFine;
  }

  // --- Messages.

  Fault visit_send(const Instruction& i) {
    const bool activation = i.kind == Kind::kSendActivation;
    const int to = i.virtual_stage + (activation ? 1 : -1);
    if (!elsewhere(to) || schedule_.rank_of(to) != i.peer) return "nobody there waits for it";
    if (!activation && backward_units(to) == 0) return "nobody there runs backward";
    const bool computed =
        activation ? forward_done(i.virtual_stage, i.micro_batch) : input_gradient_done(i.virtual_stage, i.micro_batch);
    if (!computed) return "it is not computed yet";
    Passage& p = passage(i.virtual_stage, i.micro_batch);
    if (std::exchange(activation ? p.activation_sent : p.gradient_sent, true)) return "sent twice";
    return kFine;
  }

  Fault visit_receive(const Instruction& i) {
    const bool activation = i.kind == Kind::kRecvActivation;
    const int from = i.virtual_stage + (activation ? -1 : 1);
    if (!elsewhere(from) || schedule_.rank_of(from) != i.peer) return "nobody there sends it";
    if (!activation && backward_units(i.virtual_stage) == 0) return "nothing here runs backward";
    Passage& p = passage(i.virtual_stage, i.micro_batch);
    if (activation ? p.forwards > 0 : p.input_gradients > 0) return "it is needed earlier";
    auto& received = activation ? p.activation_received : p.gradient_received;
    if (received) return "received twice";
    const int buffers = activation ? program_.num_activation_receive_slots : program_.num_gradient_receive_slots;
    if (i.receive_slot < 0 || i.receive_slot >= buffers) return "no such receive buffer";
    if (!(activation ? activation_buffers_ : gradient_buffers_).insert(i.receive_slot).second)
      return "its receive buffer is still unread";
    received = i.receive_slot;
    return kFine;
  }

  // --- Parameters.

  const UnitBytes& bytes_of(int unit) const { return program_.unit_bytes.at(static_cast<std::size_t>(unit)); }

  Fault visit_gather(const Instruction& i) {
    if (!program_.gathers_on_use) return "parameters are resident";
    if (!gathered_.fits(i.gather_place, bytes_of(i.unit).gathered, program_.gather_bytes)) return "no such place";
    if (const auto other = gathered_.add(i.unit, i.gather_place, bytes_of(i.unit).gathered))
      return fmt::format("place {} still holds unit {}", i.gather_place, *other);
    return kFine;
  }

  Fault visit_free(const Instruction& i) {
    if (!gathered_.holds(i.unit, i.gather_place)) return fmt::format("unit {} is not in place {}", i.unit, i.gather_place);
    gathered_.remove(i.unit);
    return kFine;
  }

  Fault visit_final_gather(const Instruction& i) {
    UnitState& unit = units_.at(i.unit);
    if (!program_.gathers_after_update) return "nothing is gathered after the update";
    if (!unit.stepped) return "gathered before its step";
    if (!spec_.trains(i.unit)) return "the weights of a frozen unit have not changed";
    if (i.gather_place != Instruction::kNone) return "resident parameters have no place";
    if (std::exchange(unit.gathered_after_step, true)) return "gathered twice";
    return kFine;
  }

  // --- Gradients and update.

  Fault visit_reduce(const Instruction& i) {
    if (normed_ || tied_) return "reduces after the tie exchange or the norm";
    UnitState& unit = units_.at(i.unit);
    if (unit.unreduced == 0) return "there is no new gradient";
    const int mb = unit.weight_gradients - 1;
    if (!spec_.reduces_after(mb)) return fmt::format("no reduction is due after micro-batch {}", mb);
    if (i.last() != (mb == schedule_.num_micro_batches - 1)) return "the last reduction follows the last micro-batch";
    if (spec_.zero.grad_sync_every == 1 && !unreduced_.holds(i.unit, i.grad_place)) return "its gradient is in another buffer";
    unreduced_.remove(i.unit);
    unit.unreduced = 0;
    ++unit.reductions;
    return kFine;
  }

  bool all_reduced() const {
    return std::all_of(units_.begin(), units_.end(), [&](const auto& entry) {
      const bool trains = spec_.trains(entry.first), runs_backward = spec_.runs_backward(entry.first);
      return entry.second.weight_gradients == (runs_backward ? schedule_.num_micro_batches : 0) && entry.second.unreduced == 0 &&
             entry.second.reductions == (trains ? spec_.reductions_per_unit() : 0);
    });
  }
  bool holds_tied_weight() const {
    return spec_.tied && (rank_ == spec_.embedding_rank() || rank_ == spec_.head_rank());
  }

  Fault visit_tie(const Instruction& i) {
    if (!holds_tied_weight() || tied_ || normed_) return "there is no tied weight to exchange";
    if (i.peer != (rank_ == spec_.embedding_rank() ? spec_.head_rank() : spec_.embedding_rank()))
      return "the tied weight is elsewhere";
    if (!all_reduced()) return "its gradient is not reduced";
    tied_ = true;
    return kFine;
  }

  Fault visit_norm() {
    if (!training_ || normed_) return "one norm per training step";
    if (!all_reduced()) return "a gradient is not reduced, or not as often as the policy says";
    if (holds_tied_weight() && !tied_) return "the tied weight's gradients are not exchanged";
    if (!gathered_.empty()) return fmt::format("unit {} is still gathered", gathered_.first());
    normed_ = true;
    return kFine;
  }

  Fault visit_step(const Instruction& i) {
    if (!normed_) return "steps before the norm";
    if (std::exchange(units_.at(i.unit).stepped, true)) return "stepped twice";
    return kFine;
  }

  // --- The end of the step.

  Fault visit_end() {
    if (training_ && !normed_) return "no norm";
    if (!gathered_.empty()) return fmt::format("unit {} is still gathered", gathered_.first());
    for (const auto& [id, unit] : units_) {
      if (training_ && !unit.stepped) return fmt::format("unit {} made no step", id);
      if (training_ && program_.gathers_after_update && spec_.trains(id) && !unit.gathered_after_step)
        return fmt::format("unit {} is stale", id);
    }
    const InFlight until_input = max_in_flight(schedule_, computes_input_gradient), until_weight = max_in_flight(schedule_);
    for (int stage = rank_; stage < schedule_.num_virtual_stages(); stage += schedule_.num_ranks) {
      for (int mb = 0; mb < schedule_.num_micro_batches; ++mb) {
        const Passage& p = passage(stage, mb);
        if (!forward_done(stage, mb)) return fmt::format("virtual stage {} did not run micro-batch {}", stage, mb);
        if (elsewhere(stage + 1) && !p.activation_sent) return fmt::format("stage {} kept the activation of {}", stage, mb);
        if (training_ && elsewhere(stage - 1) && backward_units(stage - 1) > 0 && !p.gradient_sent)
          return fmt::format("stage {} kept the gradient of {}", stage, mb);
      }
      const auto s = static_cast<std::size_t>(stage), chunk = static_cast<std::size_t>(schedule_.chunk_of(stage));
      Fault fault = counted(activations_, stage, program_.num_activation_slots[chunk], until_input.per_virtual_stage[s]);
      if (!fault) fault = counted(weight_inputs_, stage, program_.num_weight_slots[chunk], until_weight.per_virtual_stage[s]);
      if (fault) return fault;
    }
    return kFine;
  }

  Fault counted(HeldSlots& held, int stage, int planned, int simulated) const {
    const bool keeps = training_ && backward_units(stage) > 0;
    if (!keeps) simulated = 1;
    const int in_flight = keeps ? held.peak(stage) : 1;
    if (in_flight == simulated && planned == simulated) return kFine;
    return fmt::format("virtual stage {} has {} micro-batches in flight and {} {} slots; the simulator says {}", stage, in_flight,
                       planned, held.name(), simulated);
  }

  const StepProgram& program_;
  int rank_;
  const StepProgramSpec& spec_;
  const Schedule& schedule_;
  bool training_;
  std::map<std::pair<int, int>, Passage> passages_;  // (virtual stage, micro-batch)
  std::map<int, UnitState> units_;
  TakenPlaces gathered_, unreduced_;  // parameters; transient gradients not reduced yet
  std::set<int> activation_buffers_, gradient_buffers_;  // receive buffers not read yet
  HeldSlots activations_{"activation"}, weight_inputs_{"weight"};
  std::set<std::pair<int, int>> kept_slots_;  // (chunk, slot) in use
  bool tied_ = false, normed_ = false;
};

// Barriers of the whole pipeline.
constexpr int kTieBarrier = 0, kNormBarrier = 1;

std::vector<std::vector<ChannelOp>> channel_ops(const std::vector<StepProgram>& programs, const StepProgramSpec& spec) {
  const Schedule& schedule = spec.schedule;
  std::vector<std::vector<ChannelOp>> ops(programs.size());
  for (std::size_t rank = 0; rank < programs.size(); ++rank)
    for (std::size_t at = 0; at < programs[rank].instructions.size(); ++at) {
      const Instruction& i = programs[rank].instructions[at];
      const int self = static_cast<int>(rank), position = static_cast<int>(at);
      if (i.is_send() || i.is_receive()) {
        const bool activation = i.kind == Kind::kSendActivation || i.kind == Kind::kRecvActivation;
        const int source = i.is_send() ? self : i.peer, destination = i.is_send() ? i.peer : self;
        const int reader = i.is_receive() ? i.virtual_stage : activation ? i.virtual_stage + 1 : i.virtual_stage - 1;
        ops[rank].push_back({i.is_send() ? ChannelOp::Kind::kSend : ChannelOp::Kind::kReceive,
                             2 * (source * schedule.num_ranks + destination) + (activation ? 0 : 1),
                             reader * schedule.num_micro_batches + i.micro_batch, position});
      } else if (i.kind == Kind::kTieExchange && i.peer != self) {
        ops[rank].push_back({ChannelOp::Kind::kBarrier, kTieBarrier, 0, position});
      } else if (i.kind == Kind::kGradNorm) {
        ops[rank].push_back({ChannelOp::Kind::kBarrier, kNormBarrier, 0, position});
      }
    }
  return ops;
}

void check_channels(const std::vector<StepProgram>& programs, const StepProgramSpec& spec, int capacity) {
  const int p = spec.schedule.num_ranks;
  const auto fault = find_channel_fault(channel_ops(programs, spec), 2 * p * p, {2, p}, capacity);
  if (!fault) return;
  const auto show = [&](const std::pair<int, int>& place) {
    return show_instruction(at(programs, place.first), static_cast<std::size_t>(place.second));
  };
  if (fault->kind == ChannelFault::Kind::kWrongMessage)
    throw InternalError(fmt::format("broken step program: another message arrives here (channel capacity {})\n{}", capacity,
                                    show(fault->places.front())));
  std::string message = fmt::format("broken step program: deadlock with channel capacity {}", capacity);
  for (const auto& place : fault->places) message += '\n' + show(place);
  throw InternalError(message);
}

}  // namespace

void check_step_programs(const std::vector<StepProgram>& programs, const StepProgramSpec& spec) {
  if (static_cast<int>(programs.size()) != spec.schedule.num_ranks)
    throw InternalError(fmt::format("broken step program: {} programs for {} ranks", programs.size(), spec.schedule.num_ranks));
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    const int expected = static_cast<int>(rank);
    if (programs[rank].rank != expected)
      throw InternalError(fmt::format("broken step program: rank {} has the program of {}", expected, programs[rank].rank));
    RankChecker(programs[rank], expected, spec).run();
  }
  for (const int capacity : {0, 1}) check_channels(programs, spec, capacity);
}

}  // namespace trident
