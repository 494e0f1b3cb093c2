// The planning half of stage.h: what a stage's units need, and where it lies in the arena.
#include <algorithm>
#include <cstdint>

#include "core/int_math.h"
#include "core/at.h"
#include "model/gpt.h"
#include "pipeline/stage.h"
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
    const bool recomputed = region == Region::kRecomputed || region == Region::kRecomputedForW;
    const MemoryUse use = recomputed ? MemoryUse::kActivations : MemoryUse::kWorkspace;
    region_slots_[r] = arena_plan.book(std::string(to_string(region)) + largest.text(model), use, region_bytes_[r]);
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

}  // namespace trident
