// The builder is a sequence of passes over each rank's list, one per concern. Every pass only inserts instructions or fills in
// buffer numbers; none reorders what an earlier pass placed.
#include "pipeline/schedule/step_program.h"

#include "core/check.h"
#include "core/int_math.h"
#include "pipeline/schedule/memory_places.h"
#include "pipeline/schedule/message_order.h"
#include "pipeline/schedule/step_program_lists.h"

namespace trident {
namespace {

using Kind = InstructionKind;
Instruction unit_instruction(Kind kind, int unit) {
  Instruction i;
  i.kind = kind;
  i.unit = unit;
  return i;
}

// --- Pass 1: actions become one compute per unit; messages become sends and receives. -----------------------------------------

Kind compute_kind(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return Kind::kForward;
    case ActionKind::kBackward: return Kind::kBackward;
    case ActionKind::kBackwardInput: return Kind::kBackwardInput;
    case ActionKind::kBackwardWeight: return Kind::kBackwardWeight;
  }
  return Kind::kForward;
}

void append_computes(Instructions& list, const Action& action, const StepProgramSpec& spec) {
  const std::vector<int>& units = at(spec.units_of_stage, action.virtual_stage);
  Instruction compute;
  compute.kind = compute_kind(action.kind);
  compute.virtual_stage = action.virtual_stage;
  compute.micro_batch = action.micro_batch;
  const auto append = [&](int unit) {
    if (!compute.is_forward() && !spec.runs_backward(unit)) return;
    compute.unit = unit;
    list.push_back(compute);
  };
  if (action.kind == ActionKind::kForward) std::for_each(units.begin(), units.end(), append);
  else std::for_each(units.rbegin(), units.rend(), append);
}

Instruction message_instruction(const Schedule& schedule, const WovenItem& item) {
  const Message& message = item.message;
  const bool send = item.kind == WovenItem::Kind::kSend, activation = !message.is_gradient;
  Instruction i;
  i.kind = activation ? (send ? Kind::kSendActivation : Kind::kRecvActivation) : (send ? Kind::kSendGradient : Kind::kRecvGradient);
  i.virtual_stage = !send ? message.virtual_stage : activation ? message.virtual_stage - 1 : message.virtual_stage + 1;
  i.micro_batch = message.micro_batch;
  i.peer = send ? destination_rank(schedule, message) : source_rank(schedule, message);
  return i;
}

// A gradient that nobody computes on with.
bool is_unread(const WovenItem& item, const StepProgramSpec& spec) {
  return item.kind != WovenItem::Kind::kAction && item.message.is_gradient &&
         spec.num_backward_units(item.message.virtual_stage) == 0;
}

Instructions expand(const std::vector<WovenItem>& items, const StepProgramSpec& spec) {
  Instructions list;
  list.reserve(2 * items.size());
  for (const WovenItem& item : items) {
    if (item.kind == WovenItem::Kind::kAction)
      append_computes(list, item.action, spec);
    else if (!is_unread(item, spec))
      list.push_back(message_instruction(spec.schedule, item));
  }
  return list;
}

// --- Pass 2: blocks of activation memory, and buffers for what is received. ---------------------------------------------------

// A micro-batch holds its block from the first unit's forward to the input gradient of the last unit of its backward, which is the
// first unit where all train; what weight gradients read, to that unit's weight gradient. Evaluation and stages without a backward
// keep nothing: one block serves every micro-batch.
// Where I and W are apart, what lies between them has slots of its own.
void assign_activation_slots(StepProgram& program, const StepProgramSpec& spec) {
  const Schedule& schedule = spec.schedule;
  const auto num_chunks = static_cast<std::size_t>(schedule.num_chunks);
  program.num_ranks = schedule.num_ranks;
  program.activation_slots.assign(num_chunks, std::vector<int>(static_cast<std::size_t>(schedule.num_micro_batches), 0));
  program.num_activation_slots.assign(num_chunks, 1);
  program.weight_slots = program.activation_slots;
  program.num_weight_slots = program.num_activation_slots;
  if (schedule.forward_only()) return;

  program.num_kept_slots.assign(num_chunks, 0);
  program.kept_slots = program.activation_slots;
  std::vector<SlotPool> activations(num_chunks), weights(num_chunks), kept(num_chunks);
  for (const Instruction& i : program.instructions) {
    if (!i.is_compute()) continue;
    const auto& units = at(spec.units_of_stage, i.virtual_stage);
    const int backward_units = spec.num_backward_units(i.virtual_stage);
    if (backward_units == 0) continue;
    const int last = units[units.size() - static_cast<std::size_t>(backward_units)];  // of the backward
    const auto chunk = static_cast<std::size_t>(schedule.chunk_of(i.virtual_stage)), mb = static_cast<std::size_t>(i.micro_batch);
    int &slot = program.activation_slots[chunk][mb], &weight_slot = program.weight_slots[chunk][mb],
        &kept_slot = program.kept_slots[chunk][mb];
    if (i.is_forward() && i.unit == units.front()) slot = activations[chunk].acquire(), weight_slot = weights[chunk].acquire();
    if (i.computes_input_gradient() && i.unit == last) activations[chunk].release(slot);
    if (i.computes_weight_gradient() && i.unit == last) weights[chunk].release(weight_slot);
    if (i.kind == Kind::kBackwardInput && i.unit == units.back()) kept_slot = kept[chunk].acquire();
    if (i.kind == Kind::kBackwardWeight && i.unit == last) kept[chunk].release(kept_slot);
  }
  for (std::size_t chunk = 0; chunk < num_chunks; ++chunk) {
    program.num_activation_slots[chunk] = std::max(1, activations[chunk].size());
    program.num_weight_slots[chunk] = std::max(1, weights[chunk].size());
    program.num_kept_slots[chunk] = kept[chunk].size();
  }
}

// A receive buffer is read by the first compute of the action it feeds, which keeps what it needs in the activation slot.
void assign_receive_slots(StepProgram& program, const StepProgramSpec& spec) {
  SlotPool activations, gradients;
  constexpr int kNone = Instruction::kNone;  // came from this rank itself
  const int micro_batches = spec.schedule.num_micro_batches;
  std::vector<int> held_activations(static_cast<std::size_t>(spec.schedule.num_chunks * micro_batches), kNone);
  std::vector<int> held_gradients = held_activations;
  const auto slot_of = [&](std::vector<int>& held, const Instruction& i) -> int& {
    return at(held, spec.schedule.chunk_of(i.virtual_stage) * micro_batches + i.micro_batch);
  };
  const auto release = [&](SlotPool& pool, std::vector<int>& held, const Instruction& reader) {
    if (int& slot = slot_of(held, reader); slot != kNone) pool.release(std::exchange(slot, kNone));
  };
  for (Instruction& i : program.instructions) {
    if (i.kind == Kind::kRecvActivation) {
      i.receive_slot = slot_of(held_activations, i) = activations.acquire();
    } else if (i.kind == Kind::kRecvGradient) {
      i.receive_slot = slot_of(held_gradients, i) = gradients.acquire();
    } else if (i.is_compute()) {
      const auto& units = at(spec.units_of_stage, i.virtual_stage);
      if (i.is_forward() && i.unit == units.front()) release(activations, held_activations, i);
      if (i.computes_input_gradient() && i.unit == units.back()) release(gradients, held_gradients, i);
    }
  }
  program.num_activation_receive_slots = activations.size();
  program.num_gradient_receive_slots = gradients.size();
}

// --- Pass 3: gradient reductions. ---------------------------------------------------------------------------------------------

std::vector<Instruction*> computes_of(StepProgram& program) {
  std::vector<Instruction*> computes;
  for (Instruction& i : program.instructions)
    if (i.is_compute()) computes.push_back(&i);
  return computes;
}

int place_number(std::int64_t offset) {
  if (std::in_range<int>(offset / kPlaceBytes)) return static_cast<int>(offset / kPlaceBytes);
  throw ConfigError("model: a rank gathers or reduces too much at once; raise parallel.tensor or pipeline, or lower its widths");
}

// Where transient gradients lie. One lives until its reduction has been waited for: before the next backward, or, where that is of
// another unit, follows at once and reductions overlap, before the one after. (With a forward in between the reduction has had its
// time, and the first and the last unit, which are the largest, do not lie side by side.)
void place_gradients(StepProgram& program, const std::vector<Instruction*>& computes, const StepProgramSpec& spec) {
  std::vector<Instruction*> backwards;
  std::vector<Lifetime> lifetimes;
  for (std::size_t c = 0; c < computes.size(); ++c) {
    if (computes[c]->is_forward() || !spec.trains(computes[c]->unit)) continue;
    const int unit = computes[c]->unit;
    const bool another_follows = c + 1 < computes.size() && !computes[c + 1]->is_forward() && computes[c + 1]->unit != unit;
    const auto begin = static_cast<std::int64_t>(c), end = begin + (spec.overlap && another_follows ? 1 : 0);
    lifetimes.push_back({at(program.unit_bytes, unit).gradients, begin, end});
    backwards.push_back(computes[c]);
  }
  const Places places = place(lifetimes);
  for (std::size_t b = 0; b < backwards.size(); ++b) backwards[b]->grad_place = place_number(places.offsets[b]);
  program.grad_bytes = places.bytes;
}

// A unit's gradient is reduced right after the backward that ends a sync window. When every micro-batch is a window, full
// gradients never outlive a backward by much and share a region; otherwise each unit accumulates in its own.
void weave_reductions(StepProgram& program, const StepProgramSpec& spec) {
  const std::vector<Instruction*> computes = computes_of(program);
  if (spec.zero.grad_sync_every == 1) place_gradients(program, computes, spec);

  Insertions insertions;
  for (Instruction* compute : computes) {
    if (compute->is_forward() || !spec.trains(compute->unit)) continue;
    const int mb = compute->micro_batch;
    if (mb == 0 || spec.reduces_after(mb - 1)) compute->flags |= Instruction::kOverwrite;
    if (!compute->computes_weight_gradient() || !spec.reduces_after(mb)) continue;

    Instruction reduce = unit_instruction(Kind::kReduceGradients, compute->unit);
    reduce.grad_place = compute->grad_place;
    if (mb == spec.schedule.num_micro_batches - 1) reduce.flags |= Instruction::kLast;
    insertions.after(static_cast<std::size_t>(compute - program.instructions.data()), reduce);
  }
  insertions.apply(program.instructions);
}

// --- Pass 4: gathers. ---------------------------------------------------------------------------------------------------------

// A stretch of the program during which a unit's parameters are complete on this rank: its computes, first to last.
struct Residency {
  int unit;
  std::vector<std::size_t> computes;  // indices among the rank's computes, ascending
};

// Whether no later compute of the micro-batch reads the unit's parameters.
bool ends_use(const Instruction& backward, const StepProgramSpec& spec) {
  Instruction weight_gradient = backward;
  weight_gradient.kind = Kind::kBackwardWeight;
  return backward.computes_weight_gradient() || !spec.reads_parameters(weight_gradient);
}

// Where the policy wants a unit gathered, in order of first use. What the rank computes next needs the unit again: it stays.
std::vector<Residency> residencies(const std::vector<Instruction*>& computes, const StepProgramSpec& spec) {
  const bool per_use = spec.zero.param_gather == ParamGather::kPerUse || spec.schedule.forward_only();
  std::vector<Residency> result;
  struct Holding {
    std::size_t residency = 0;
    int micro_batches = 0;  // in flight: forward done, the last backward that reads parameters not
  };
  std::vector<Holding> holdings(static_cast<std::size_t>(spec.head_unit()) + 1);  // by unit
  for (std::size_t c = 0; c < computes.size(); ++c) {
    if (!spec.reads_parameters(*computes[c])) continue;
    const int unit = computes[c]->unit;
    Holding& held = at(holdings, unit);
    const bool was_used_just_now = c > 0 && computes[c - 1]->unit == unit && spec.reads_parameters(*computes[c - 1]);
    if (!was_used_just_now && (per_use || held.micro_batches == 0 || !spec.runs_backward(unit))) {
      held.residency = result.size();
      result.push_back({unit, {}});
    }
    result[held.residency].computes.push_back(c);
    if (computes[c]->is_forward()) ++held.micro_batches;
    else if (ends_use(*computes[c], spec))
      --held.micro_batches;
  }
  return result;
}

// Each residency is gathered before its first compute and freed after its last. The gather comes one compute early when
// communication overlaps; in an evaluation only within a pass of a micro-batch, or the last unit and the first, which are the
// largest, would lie side by side.
std::size_t gathered_before(const Residency& residency, const std::vector<Instruction*>& computes, const StepProgramSpec& spec) {
  const std::size_t first = residency.computes.front();
  if (!spec.overlap || first == 0) return first;
  const bool same_pass = computes[first - 1]->micro_batch == computes[first]->micro_batch &&
                         computes[first - 1]->virtual_stage == computes[first]->virtual_stage;
  return spec.schedule.forward_only() && !same_pass ? first : first - 1;
}

// Whether the rank gathers on use: if the policy says so, and if that takes less than resident parameters do.
bool saves_memory(const StepProgram& program, const StepProgramSpec& spec) {
  if (!spec.gathers_on_use.empty()) return at(spec.gathers_on_use, program.rank);
  if (spec.unit_bytes.empty()) return true;
  std::int64_t resident = 0, shards = 0;
  for (const int unit : program.units) {
    resident += at(program.unit_bytes, unit).resident;
    shards += at(program.unit_bytes, unit).shard;
  }
  return program.gather_bytes + round_up(shards, kPlaceBytes) < resident;
}

void weave_gathers(StepProgram& program, const StepProgramSpec& spec) {
  const std::vector<Instruction*> computes = computes_of(program);
  const auto position = [&](std::size_t c) { return static_cast<std::size_t>(computes[c] - program.instructions.data()); };

  const std::vector<Residency> all = residencies(computes, spec);
  std::vector<Lifetime> lifetimes;
  for (const Residency& residency : all)
    lifetimes.push_back({at(program.unit_bytes, residency.unit).gathered,
                         static_cast<std::int64_t>(gathered_before(residency, computes, spec)),
                         static_cast<std::int64_t>(residency.computes.back())});
  const Places places = place(lifetimes);
  program.gather_bytes = places.bytes;
  program.gathers_on_use = saves_memory(program, spec);
  if (!program.gathers_on_use) return;

  Insertions insertions;
  for (std::size_t r = 0; r < all.size(); ++r) {
    Instruction gather = unit_instruction(Kind::kGather, all[r].unit);
    gather.gather_place = place_number(places.offsets[r]);
    for (const std::size_t c : all[r].computes) computes[c]->gather_place = gather.gather_place;
    Instruction free = gather;
    free.kind = Kind::kFree;
    insertions.before(position(static_cast<std::size_t>(lifetimes[r].begin)), gather);
    insertions.after(position(all[r].computes.back()), free);
  }
  insertions.apply(program.instructions);
}

// --- Pass 5: the update. ------------------------------------------------------------------------------------------------------

void append_update(StepProgram& program, const StepProgramSpec& spec) {
  Instructions& list = program.instructions;
  const bool embedding = program.rank == spec.embedding_rank(), head = program.rank == spec.head_rank();
  if (spec.tied && (embedding || head)) {
    Instruction exchange;
    exchange.kind = Kind::kTieExchange;
    exchange.peer = embedding ? spec.head_rank() : spec.embedding_rank();
    list.push_back(exchange);
  }
  Instruction norm;
  norm.kind = Kind::kGradNorm;
  list.push_back(norm);
  for (const int unit : program.units) {  // in order of next use, so that the next step can start while later units follow
    list.push_back(unit_instruction(Kind::kOptimizerStep, unit));
    if (program.gathers_after_update && spec.trains(unit)) list.push_back(unit_instruction(Kind::kGather, unit));
  }
}

std::vector<int> units_in_order_of_use(const Instructions& list) {
  std::vector<int> units;
  for (const Instruction& i : list)
    if (i.is_forward() && std::find(units.begin(), units.end(), i.unit) == units.end()) units.push_back(i.unit);
  return units;
}

void refuse_split_backward_between_reductions(const StepProgramSpec& spec) {
  if (spec.zero.grad_sync_every == 0) return;
  for (const auto& actions : spec.schedule.ranks)
    for (const Action& a : actions)
      if (a.kind == ActionKind::kBackwardInput)
        throw ConfigError(fmt::format("parallel.grad_sync = every {}: a schedule that splits backward into input and weight "
                                      "gradients reduces once per step; set it to \"step\"", spec.zero.grad_sync_every));
}

std::vector<StepProgram> build(const StepProgramSpec& spec, ReceivePosting posting) {
  TRIDENT_CHECK(static_cast<int>(spec.units_of_stage.size()) == spec.schedule.num_virtual_stages(), "{} stages of units for {}",
                spec.units_of_stage.size(), spec.schedule.num_virtual_stages());
  TRIDENT_CHECK(spec.data_parallel >= 1 && spec.zero.grad_sync_every >= 0, "data_parallel {}, grad_sync_every {}",
                spec.data_parallel, spec.zero.grad_sync_every);
  refuse_split_backward_between_reductions(spec);

  std::vector<StepProgram> programs;
  for (const auto& items : weave_messages(spec.schedule, posting)) {
    StepProgram& program = programs.emplace_back();
    program.rank = static_cast<int>(programs.size()) - 1;
    program.instructions = expand(items, spec);
    program.units = units_in_order_of_use(program.instructions);
    program.unit_bytes = spec.unit_bytes;
    program.unit_bytes.resize(static_cast<std::size_t>(spec.head_unit()) + 1);
    assign_activation_slots(program, spec);
    assign_receive_slots(program, spec);
    if (!spec.schedule.forward_only()) weave_reductions(program, spec);
    if (spec.data_parallel > 1 && spec.zero.param_gather != ParamGather::kResident) weave_gathers(program, spec);
    program.gathers_after_update = spec.data_parallel > 1 && spec.zero.shard_optimizer && !program.gathers_on_use;
    if (!spec.schedule.forward_only()) append_update(program, spec);
  }
  return programs;
}

}  // namespace

bool StepProgramSpec::reduces_after(int mb) const {
  const std::int64_t k = zero.grad_sync_every;
  return mb == schedule.num_micro_batches - 1 || (k > 0 && (mb + 1) % k == 0);
}

int StepProgramSpec::reductions_per_unit() const {
  const std::int64_t k = zero.grad_sync_every;
  return k == 0 ? 1 : static_cast<int>(ceil_div(schedule.num_micro_batches, k));
}

std::vector<StepProgram> build_step_programs(const StepProgramSpec& spec) {
  return build(spec, spec.overlap ? ReceivePosting::kEarly : ReceivePosting::kLate);
}

std::vector<StepProgram> build_programs_for_pricing(const StepProgramSpec& spec) { return build(spec, ReceivePosting::kNever); }

bool StepProgram::has(InstructionKind kind) const {
  return std::any_of(instructions.begin(), instructions.end(), [&](const Instruction& i) { return i.kind == kind; });
}

namespace {

constexpr std::size_t kLineWidth = 128;

// The text of a program has these words for its instructions.
constexpr std::array<std::string_view, 14> kWords{"F", "B", "I", "W", "send_act", "recv_act", "send_grad",
                                                   "recv_grad", "gather", "free", "reduce", "tie", "norm", "step"};

}  // namespace

std::string to_string(const Instruction& i) {
  const auto slot = [](std::string_view prefix, int number) {
    return number == Instruction::kNone ? std::string{} : fmt::format("{}{}", prefix, number);
  };
  if (i.is_compute()) {
    std::string text = fmt::format("{}(u{},m{}){}", at(kWords, i.kind), i.unit, i.micro_batch, slot("@", i.gather_place));
    if (!i.is_forward()) text += (i.overwrites() ? "=" : "+=") + slot("g", i.grad_place);
    return text;
  }
  if (i.is_send()) return fmt::format("{}(s{},m{})>{}", at(kWords, i.kind), i.virtual_stage, i.micro_batch, i.peer);
  if (i.is_receive())
    return fmt::format("{}(s{},m{})<{}{}", at(kWords, i.kind), i.virtual_stage, i.micro_batch, i.peer, slot("@", i.receive_slot));
  if (i.kind == Kind::kReduceGradients) return fmt::format("reduce(u{}){}{}", i.unit, slot("g", i.grad_place), i.last() ? "!" : "");
  if (i.kind == Kind::kTieExchange) return fmt::format("tie<>{}", i.peer);
  if (i.kind == Kind::kGradNorm) return "norm";
  return fmt::format("{}(u{}){}", at(kWords, i.kind), i.unit, slot("@", i.gather_place));
}

std::string short_name(const Instruction& i) {
  std::string name(to_string(i.kind));
  if (i.unit != Instruction::kNone) name += fmt::format(" u{}", i.unit);
  if (i.micro_batch != Instruction::kNone) name += fmt::format(" m{}", i.micro_batch);
  return name;
}

std::string to_text(const StepProgram& program) {
  std::string text, line = fmt::format("rank {}:", program.rank);
  for (const Instruction& i : program.instructions) {
    const std::string word = to_string(i);
    if (line.size() + 1 + word.size() > kLineWidth) {
      text += line + '\n';
      line = "       ";
    }
    line += ' ' + word;
  }
  return text + line + '\n';
}

}  // namespace trident
