#include "pipeline/stage.h"

#include <algorithm>
#include <utility>

#include "core/int_math.h"
#include "device/operations.h"
#include "device/ops.h"
#include "model/declare.h"
#include "model/gpt.h"
#include "pipeline/stage_regions.h"

namespace trident {
namespace {

// 0 where no pass saves it.
std::int64_t bytes_of(const Saved& handle, const UnitMemory& memory) {
  const auto place = std::ranges::find(memory.places, &handle, [](const auto& entry) { return entry.first; });
  return place == memory.places.end() ? 0 : place->second.num_bytes();
}

// For messages: the largest tensor of several units' regions.
struct LargestTensor {
  RegionTensor tensor;
  int unit = 0;
  void offer(const RegionTensor& other, int of_unit) {
    if (other.shape.rank() > 0 && (tensor.shape.rank() == 0 || other.num_bytes() > tensor.num_bytes()))
      tensor = other, unit = of_unit;
  }
  // " (the largest: bf16 [8192, 50304] of the head)".
  std::string text(const ModelConfig& model) const {
    if (tensor.shape.rank() == 0) return "";
    const std::string owner = unit == 0                  ? "the embedding"
                              : unit == head_unit(model) ? "the head"
                                                         : fmt::format("block {}", unit - 1);
    return fmt::format(" (the largest: {} {} of {})", to_string(tensor.dtype), to_string(tensor.shape), owner);
  }
};

}  // namespace

std::int64_t Stage::Slots::add(std::int64_t more) {
  const std::int64_t offset = bytes;
  bytes += round_up(more, kArenaAlignment);
  return offset;
}

Stage::Stage(const ModelConfig& model, const LayerGeometry& geometry, const UnitsOfStage& units_of_stage,
             std::span<const StepProgram* const> programs, ParallelContext& context, ArenaPlan& arena_plan)
    : geometry_(geometry),
      constants_(
          model, geometry, arena_plan,
          forward_only(programs) || geometry.positions_restart ? ModelConstants::Lengths::kUpTo : ModelConstants::Lengths::kOne),
      activation_shape_(geometry.activation_shape(model.hidden)),
      context_(context),
      num_virtual_stages_(static_cast<int>(units_of_stage.size())) {
  const int rank = context.coordinates().pipeline, num_ranks = context.grid().degrees().pipeline;
  splits_backwards_ = has(programs, InstructionKind::kBackwardInput);
  for (int stage = rank; stage < num_virtual_stages_; stage += num_ranks)
    plan_chunk(stage, model, at(units_of_stage, stage), programs, arena_plan);
  // Remade tensors are first made in forward, in the area that all share; kept ones are backward_input's alone.
  if (splits_backwards_ && !has(programs, InstructionKind::kBackward))
    at(region_bytes_, Region::kKept) = 0;
  book_regions(model, arena_plan);
  book_boundaries(programs, arena_plan);
}

bool Stage::has(std::span<const StepProgram* const> programs, InstructionKind kind) {
  return std::ranges::any_of(programs, [&](const StepProgram* p) { return p->has(kind); });
}

bool Stage::runs_backward(std::span<const StepProgram* const> programs, int unit) {
  return std::ranges::any_of(programs, [&](const StepProgram* program) {
    return std::ranges::any_of(program->instructions,
                               [&](const Instruction& i) { return i.unit == unit && i.computes_input_gradient(); });
  });
}

bool Stage::forward_only(std::span<const StepProgram* const> programs) {
  return !has(programs, InstructionKind::kBackward) && !has(programs, InstructionKind::kBackwardInput);
}

std::int64_t Stage::activation_bytes() const {
  return round_up(activation_shape_.num_elements() * size_of(geometry_.compute), kArenaAlignment);
}

// The passes of a virtual stage's units, and where in a micro-batch's blocks their tensors lie.
void Stage::plan_chunk(int stage, const ModelConfig& model, const std::vector<int>& units,
                       std::span<const StepProgram* const> programs, ArenaPlan& arena_plan) {
  Chunk& chunk = chunks_.emplace_back();
  chunk.virtual_stage = stage;
  Slots& for_weights = splits_backwards_ ? chunk.for_weights : chunk.blocks;
  LargestTensor largest_saved;
  std::int64_t logits = 0;
  for (const int unit : units) {
    UnitPart& part = chunk.units.emplace_back();
    part.unit = unit;
    part.layer = make_unit(model, unit);
    const PlannedPasses passes = runs_backward(programs, unit) ? PlannedPasses::kAll : PlannedPasses::kForward;
    const UnitPlan plan = plan_unit(*part.layer, geometry_, model.hidden, constants_, context_.device().ops(), unit, passes);
    part.params = plan.params();
    part.memory = plan.memory();
    part.input_for_weights = passes == PlannedPasses::kAll && part.layer->input_last_use() == LastUse::kW;
    const std::size_t index = chunk.units.size() - 1;
    // The input of a unit without a backward is over when the next unit's is written: the one after that may lie there.
    part.shares_input = index >= 2 && passes == PlannedPasses::kForward && chunk.units[index - 2].unit > 0;
    if (part.shares_input)
      part.input_offset = chunk.units[index - 2].input_offset;
    else if (unit > 0)
      part.input_offset = (part.input_for_weights ? for_weights : chunk.blocks).add(activation_bytes());
    part.offset[kSaved] = chunk.blocks.add(part.memory.bytes[kSaved]);
    part.offset[kSavedForW] = for_weights.add(part.memory.bytes[kSavedForW]);
    for (const std::size_t r : kFromInputToWeight) part.offset[r] = chunk.kept.add(part.memory.bytes[r]);
    if (part.memory.derives())
      part.derived_slot = arena_plan.book(derived_name(unit), MemoryUse::kParameters, part.memory.bytes[kDerived]);
    for (const Region region : {Region::kSaved, Region::kSavedForW}) largest_saved.offer(part.memory.largest_of(region), unit);
    if (const Saved* const saved = part.layer->saved_logits()) logits = bytes_of(*saved, part.memory);
    for (std::size_t r = 0; r < region_bytes_.size(); ++r) {
      if (is_shared(r)) region_bytes_[r] = std::max(region_bytes_[r], part.memory.region_bytes(static_cast<Region>(r)));
    }
  }
  if (forward_only(programs)) overlay(chunk, activation_bytes());
  book_slots(chunk, programs, largest_saved.text(model), arena_plan);
  if (!forward_only(programs)) count_held(chunk);
  logits_bytes_ += logits * std::ssize(for_weights.views);
  if (is_last(stage) && geometry_.head_chunk >= geometry_.full_rows()) {  // scratch has them all
    const std::int64_t columns = padded_vocabulary(model, geometry_.tensor_degree) / geometry_.tensor_degree;
    logits_bytes_ += geometry_.full_rows() * columns * size_of(geometry_.compute);
  }
}

void Stage::count_held(const Chunk& chunk) {
  BytesByKind& held = held_by_kind_;
  for (const UnitPart& part : chunk.units) {
    const Slots& inputs = part.input_for_weights && splits_backwards_ ? chunk.for_weights : chunk.blocks;
    if (part.unit > 0 && !part.shares_input)
      at(held, ActivationKind::kInputs) += activation_bytes() * std::ssize(inputs.views);
    const auto add = [&](const Slots& slots, Region region) {
      const BytesByKind of_one = part.memory.bytes_by_kind(region);
      for (std::size_t kind = 0; kind < held.size(); ++kind) held[kind] += of_one[kind] * std::ssize(slots.views);
    };
    add(chunk.blocks, Region::kSaved);
    add(splits_backwards_ ? chunk.for_weights : chunk.blocks, Region::kSavedForW);
    for (const std::size_t r : kFromInputToWeight) add(chunk.kept, static_cast<Region>(r));
  }
}

// The areas that all units share.
void Stage::book_regions(const ModelConfig& model, ArenaPlan& arena_plan) {
  for (std::size_t r = 0; r < region_bytes_.size(); ++r) {
    if (!is_shared(r)) continue;
    const auto region = static_cast<Region>(r);
    LargestTensor largest;
    for (const Chunk& chunk : chunks_) {
      for (const UnitPart& part : chunk.units) largest.offer(part.memory.largest_of(region), part.unit);
    }
    region_slots_[r] = arena_plan.book(std::string(to_string(region)) + largest.text(model), use_of_shared(r), region_bytes_[r]);
  }
}

// Books the buffers of tensors that cross stage boundaries.
void Stage::book_boundaries(std::span<const StepProgram* const> programs, ArenaPlan& arena_plan) {
  int activation_receives = 0, gradient_receives = 0;
  for (const StepProgram* program : programs) {
    activation_receives = std::max(activation_receives, program->num_activation_receive_slots);
    gradient_receives = std::max(gradient_receives, program->num_gradient_receive_slots);
  }
  activation_receives_.resize(static_cast<std::size_t>(activation_receives));
  gradient_receives_.resize(static_cast<std::size_t>(gradient_receives));
  const auto book = [&](std::span<Boundary> boundaries, std::string_view name) {
    for (std::size_t i = 0; i < boundaries.size(); ++i) {
      boundaries[i].slot =
          arena_plan.book(fmt::format("{} {} {} {}", name, i, to_string(geometry_.compute), to_string(activation_shape_)),
                          MemoryUse::kCommunication, activation_bytes());
    }
  };
  book(activation_receives_, "received activations");
  book(gradient_receives_, "received gradients");
  if (!forward_only(programs)) book(gradients_, "activation gradients");
  if (num_virtual_stages_ > 1) book(sends_, "sent activations");
}

// No backward comes: what a unit saves and reads may lie where the unit before it had its own. Inputs take turns, because a unit
// writes the next one's while it reads its own.
void Stage::overlay(Chunk& chunk, std::int64_t activation_bytes) {
  chunk.blocks.bytes = 0;
  for (std::size_t i = 0; i < chunk.units.size(); ++i) {
    UnitPart& part = chunk.units[i];
    part.input_offset = static_cast<std::int64_t>(i % 2) * activation_bytes;
    Slots unit;
    unit.bytes = 2 * activation_bytes;
    for (const std::size_t r : {kSaved, kSavedForW}) part.offset[r] = unit.add(part.memory.bytes[r]);
    chunk.blocks.bytes = std::max(chunk.blocks.bytes, unit.bytes);
  }
}

void Stage::book_slots(Chunk& chunk, std::span<const StepProgram* const> programs, const std::string& largest,
                       ArenaPlan& arena_plan) {
  const auto c = static_cast<std::size_t>(&chunk - chunks_.data());
  const auto book = [&](Slots& slots, std::vector<int> StepProgram::*count, const auto& name) {
    int most = 0;
    for (const StepProgram* program : programs)
      if (!(program->*count).empty()) most = std::max(most, (program->*count)[c]);
    for (int i = 0; i < most; ++i) slots.ranges.push_back(arena_plan.book(name(i), MemoryUse::kActivations, slots.bytes));
    slots.views.resize(slots.ranges.size());
  };
  const int stage = chunk.virtual_stage;
  book(chunk.blocks, &StepProgram::num_activation_slots,
       [&](int i) { return fmt::format("activations of stage {}, block {}{}", stage, i, largest); });
  if (splits_backwards_)
    book(chunk.for_weights, &StepProgram::num_weight_slots,
         [&](int i) { return fmt::format("activations for weight gradients of stage {}, block {}", stage, i); });
  book(chunk.kept, &StepProgram::num_kept_slots,
       [&](int i) { return fmt::format("kept for weight gradients of stage {}, slot {}", stage, i); });
}

std::vector<ActivationBlocks> Stage::activation_blocks() const {
  std::vector<ActivationBlocks> list;
  for (const Chunk& chunk : chunks_) {
    list.push_back({chunk.virtual_stage, chunk.blocks.bytes});
    if (splits_backwards_) list.back().for_weights = chunk.for_weights.bytes, list.back().kept = chunk.kept.bytes;
  }
  return list;
}

std::vector<UnitParams> Stage::unit_params() const {
  std::vector<UnitParams> units;
  for (const Chunk& chunk : chunks_) {
    for (const UnitPart& part : chunk.units) units.push_back({part.unit, part.params});
  }
  return units;
}

void Stage::bind(Arena& arena, ParamStore& store) {
  store_ = &store;
  constants_.bind(arena, context_.device());
  const auto bytes = [&](ArenaSlot slot) { return arena.grant(slot, DType::kU8, Shape{slot.bytes}); };
  const auto activation = [&](ArenaSlot slot) { return arena.grant(slot, geometry_.compute, activation_shape_); };
  for (Chunk& chunk : chunks_) {
    for (UnitPart& part : chunk.units) {
      part.views.emplace(store, part.unit);
      if (part.memory.derives()) part.derived = bytes(part.derived_slot).data();
    }
    for (Slots* slots : {&chunk.blocks, &chunk.for_weights, &chunk.kept})
      for (std::size_t i = 0; i < slots->views.size(); ++i) slots->views[i] = bytes(slots->ranges[i]);
  }
  for (std::size_t r = 0; r < regions_.size(); ++r) {
    if (is_shared(r)) regions_[r] = bytes(region_slots_[r]).data();
  }
  for (Boundary& b : activation_receives_) b.view = activation(b.slot);
  for (Boundary& b : gradient_receives_) b.view = activation(b.slot);
  for (Boundary& b : gradients_) {
    if (b.slot.bytes > 0) b.view = activation(b.slot);
  }
  if (num_virtual_stages_ > 1) {
    for (Boundary& b : sends_) b.view = activation(b.slot);
  }
}

void Stage::set_micro_batches(std::span<const MicroBatch> micro_batches, const StepProgram& program) {
  micro_batches_ = micro_batches;
  program_ = &program;
  // A step of training derives anew, though an evaluation may have done so: what it sends is predicted to the byte.
  if (micro_batches.empty() || !micro_batches.front().training) return;
  for (Chunk& chunk : chunks_)
    for (UnitPart& part : chunk.units) part.derived_version = -1;
}

// ---- finding things -------------------------------------------------------------------------------------------------------------

Stage::Chunk& Stage::chunk_of(int virtual_stage) {
  return at(chunks_, virtual_stage / context_.grid().degrees().pipeline);
}

bool Stage::is_local(int virtual_stage) const {
  return virtual_stage >= 0 && virtual_stage < num_virtual_stages_ &&
         virtual_stage % context_.grid().degrees().pipeline == context_.coordinates().pipeline;
}

Stage::UnitPart& Stage::part_of(Chunk& chunk, int unit, std::size_t& index) {
  index = static_cast<std::size_t>(unit - chunk.units.front().unit);  // units of a stage are consecutive
  return chunk.units[index];
}

TensorView Stage::block(const Chunk& chunk, int micro_batch) const {
  return chunk.blocks.at(program_->activation_slot(chunk.virtual_stage, micro_batch));
}

TensorView Stage::block_for_weights(const Chunk& chunk, int micro_batch) const {
  if (!splits_backwards_) return block(chunk, micro_batch);
  return chunk.for_weights.at(program_->weight_slot(chunk.virtual_stage, micro_batch));
}

TensorView Stage::input_of(const Chunk& chunk, std::size_t index, int micro_batch) const {
  const UnitPart& part = chunk.units[index];
  if (part.unit == 0) return TensorView();  // the embedding reads tokens
  const TensorView memory = part.input_for_weights ? block_for_weights(chunk, micro_batch) : block(chunk, micro_batch);
  return {memory.data() + part.input_offset, geometry_.compute, activation_shape_, memory.where()};
}

// Where unit number `index` of the chunk writes: the next unit's input, or a buffer that the next virtual stage gets it from.
TensorView Stage::output_of(Chunk& chunk, std::size_t index, int micro_batch) {
  if (index + 1 < chunk.units.size()) return input_of(chunk, index + 1, micro_batch);
  if (is_last(chunk.virtual_stage)) return TensorView();  // the head writes the loss
  current_send_ = (current_send_ + 1) % sends_.size();
  Boundary& boundary = sends_[current_send_];
  context_.compute_stream().wait(boundary.message);  // its last message must have left
  boundary.virtual_stage = chunk.virtual_stage;
  boundary.micro_batch = micro_batch;
  return boundary.view;
}

LayerPass Stage::pass_over(const Chunk& chunk, const UnitPart& part, int micro_batch, Halves halves) const {
  const TensorView memory = block(chunk, micro_batch);
  PassEnvironment place{.ops = context_.device().ops(),
                  .stream = context_.compute_stream(),
                  .tensor = context_.tensor(),
                  .params = *part.views,
                  .geometry = geometry_,
                  .unit = part.unit,
                  .base = regions_,
                  .workspace_bytes = at(region_bytes_, Region::kWorkspace),
                  .where = memory.where()};
  const int stage = chunk.virtual_stage;
  place.base[kSaved] = memory.data() + part.offset[kSaved];
  place.base[kDerived] = part.derived;
  place.base[kSavedForW] = block_for_weights(chunk, micro_batch).data() + part.offset[kSavedForW];
  if (halves == Halves::kApart) {
    std::byte* const kept = chunk.kept.at(program_->kept_slot(stage, micro_batch)).data();
    for (const std::size_t r : kFromInputToWeight) place.base[r] = kept + part.offset[r];
  }
  return {Pass(place, part.memory), at(micro_batches_, micro_batch), constants_};
}

// A tensor that the virtual stage beside this one left here: schedules run such neighbours one after the other.
const Stage::Boundary& Stage::handed_over(const Boundary& boundary, int virtual_stage, int micro_batch) const {
  TRIDENT_CHECK(boundary.virtual_stage == virtual_stage && boundary.micro_batch == micro_batch,
                "virtual stage {} of micro-batch {} was expected, {} of {} is here", virtual_stage, micro_batch,
                boundary.virtual_stage, boundary.micro_batch);
  return boundary;
}

// Copies what was received for a virtual stage and micro-batch; its receive buffer is then free for the next message.
void Stage::take_received(TensorView out, std::vector<Boundary>& receives, int virtual_stage, int micro_batch) {
  for (Boundary& boundary : receives) {
    if (boundary.virtual_stage != virtual_stage || boundary.micro_batch != micro_batch) continue;
    context_.compute_stream().wait(boundary.message);
    copy(out, boundary.view);
    boundary.virtual_stage = boundary.micro_batch = Instruction::kNone;
    return;
  }
  throw InternalError(fmt::format("nothing was received for virtual stage {} of micro-batch {}", virtual_stage, micro_batch));
}

void Stage::copy(TensorView out, ConstTensorView in) const {
  context_.device().ops().run(context_.compute_stream(), op::Convert{.out = out, .x = in});
}

void Stage::run(FunctionRef<void()> calls) const {
  if (geometry_.tensor_degree == 1) return context_.device().run_capturable(calls);
  calls();
}

// ---- computing ------------------------------------------------------------------------------------------------------------------

void Stage::forward(const Instruction& instruction) {
  Chunk& chunk = chunk_of(instruction.virtual_stage);
  std::size_t index = 0;
  UnitPart& part = part_of(chunk, instruction.unit, index);
  const int mb = instruction.micro_batch;
  const TensorView x = input_of(chunk, index, mb);
  if (index == 0 && is_local(chunk.virtual_stage - 1)) {
    copy(x, handed_over(sends_[current_send_], chunk.virtual_stage - 1, mb).view);
  } else if (index == 0 && !is_first(chunk.virtual_stage)) {
    take_received(x, activation_receives_, chunk.virtual_stage, mb);
  }
  const TensorView y = output_of(chunk, index, mb);
  LayerPass p = pass_over(chunk, part, mb);
  if (part.memory.derives() && std::exchange(part.derived_version, store_->weights_version()) != store_->weights_version())
    run([&] { part.layer->derive(p); });
  run([&] { part.layer->forward(p, x, y); });
}

void Stage::begin_backward(const Chunk& chunk, int mb) {
  const Boundary& before = gradients_[current_gradient_];
  current_gradient_ = (current_gradient_ + 1) % gradients_.size();
  Boundary& boundary = gradients_[current_gradient_];
  context_.compute_stream().wait(boundary.message);
  boundary.virtual_stage = chunk.virtual_stage;
  boundary.micro_batch = mb;
  const TensorView d = boundary.view;
  if (is_local(chunk.virtual_stage + 1)) {
    copy(d, handed_over(before, chunk.virtual_stage + 1, mb).view);
  } else if (!is_last(chunk.virtual_stage)) {
    take_received(d, gradient_receives_, chunk.virtual_stage, mb);
  }
}

void Stage::backward(const Instruction& instruction) {
  Chunk& chunk = chunk_of(instruction.virtual_stage);
  std::size_t index = 0;
  const UnitPart& part = part_of(chunk, instruction.unit, index);
  const int mb = instruction.micro_batch;
  if (index + 1 == chunk.units.size()) begin_backward(chunk, mb);
  const bool split = !instruction.computes_weight_gradient();
  LayerPass p = pass_over(chunk, part, mb, split ? Halves::kApart : Halves::kTogether);
  const TensorView x = input_of(chunk, index, mb), d = gradients_[current_gradient_].view;
  run([&] {
    if (geometry_.recompute != RecomputePolicy::kNone) {
      const RangeScope again(context_.device().ranges(), kRecomputeRange);
      part.layer->recompute(p, x);
    }
    if (split) part.layer->backward_input(p, x, d);
    else part.layer->backward(p, x, d);
  });
}

void Stage::backward_weight(const Instruction& instruction) {
  Chunk& chunk = chunk_of(instruction.virtual_stage);
  std::size_t index = 0;
  const UnitPart& part = part_of(chunk, instruction.unit, index);
  LayerPass p = pass_over(chunk, part, instruction.micro_batch, Halves::kApart);
  const TensorView x = part.input_for_weights ? input_of(chunk, index, instruction.micro_batch) : TensorView();
  run([&] { part.layer->backward_weight(p, x); });
}

// ---- messages -------------------------------------------------------------------------------------------------------------------

void Stage::send(Boundary& boundary, const Instruction& instruction, Direction direction) {
  Stream& stream = context_.send_stream(direction);
  stream.wait(context_.compute_stream().record());  // it has just been computed
  context_.pipeline(direction).send(stream, boundary.view, instruction.peer);
  boundary.message = stream.record();
}

void Stage::recv(Boundary& boundary, const Instruction& instruction, Direction direction) {
  Stream& stream = context_.recv_stream(direction);
  stream.wait(context_.compute_stream().record());  // the compute that read this buffer before
  context_.pipeline(direction).recv(stream, boundary.view, instruction.peer);
  boundary.message = stream.record();
  boundary.virtual_stage = instruction.virtual_stage;
  boundary.micro_batch = instruction.micro_batch;
}

void Stage::send_activation(const Instruction& instruction) { send(sends_[current_send_], instruction, Direction::kForward); }

void Stage::recv_activation(const Instruction& instruction) {
  recv(at(activation_receives_, instruction.receive_slot), instruction, Direction::kForward);
}

void Stage::send_gradient(const Instruction& instruction) {
  send(gradients_[current_gradient_], instruction, Direction::kBackward);
}

void Stage::recv_gradient(const Instruction& instruction) {
  recv(at(gradient_receives_, instruction.receive_slot), instruction, Direction::kBackward);
}

}  // namespace trident
