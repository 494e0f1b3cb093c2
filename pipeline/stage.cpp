#include "pipeline/stage.h"

#include <algorithm>

#include "core/int_math.h"
#include "model/gpt.h"

namespace trident {
namespace {

constexpr auto kSaved = static_cast<std::size_t>(Region::kSaved);

}  // namespace

// ---- planning ---------------------------------------------------------------------------------------------------------------

Stage::Stage(const ModelConfig& model, const LayerGeometry& geometry, const UnitsOfStage& units_of_stage,
             std::span<const StepProgram* const> programs, ParallelContext& context, ArenaPlan& arena_plan)
    : geometry_(geometry),
      constants_(model, geometry, arena_plan),
      activation_shape_(geometry.activation_shape(model.hidden)),
      context_(context),
      num_virtual_stages_(static_cast<int>(units_of_stage.size())) {
  const int rank = context.coordinates().pipeline, num_ranks = context.grid().degrees().pipeline;
  const std::int64_t activation_bytes = round_up(activation_shape_.num_elements() * size_of(geometry.compute), kArenaAlignment);
  int activation_receives = 0, gradient_receives = 0;
  for (const StepProgram* program : programs) {
    activation_receives = std::max(activation_receives, program->num_activation_receive_slots);
    gradient_receives = std::max(gradient_receives, program->num_gradient_receive_slots);
  }
  for (int stage = rank; stage < num_virtual_stages_; stage += num_ranks) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.virtual_stage = stage;
    for (const int unit : units_of_stage[static_cast<std::size_t>(stage)]) {
      UnitPart& part = chunk.units.emplace_back();
      part.unit = unit;
      part.layer = make_unit(model, unit);
      UnitPlan plan(geometry, context.device().ops());
      part.layer->plan(plan);
      part.params = plan.params();
      if (unit > 0) {
        part.input_offset = chunk.block_bytes;
        chunk.block_bytes += activation_bytes;
      }
      part.saved_offset = chunk.block_bytes;
      chunk.block_bytes += round_up(plan.region_bytes(Region::kSaved), kArenaAlignment);
      for (std::size_t r = 0; r < region_bytes_.size(); ++r) {
        if (r != kSaved) region_bytes_[r] = std::max(region_bytes_[r], plan.region_bytes(static_cast<Region>(r)));
      }
    }
    const auto c = chunks_.size() - 1;
    int blocks = 0;
    for (const StepProgram* program : programs) blocks = std::max(blocks, program->num_activation_slots[c]);
    for (int i = 0; i < blocks; ++i) {
      chunk.block_slots.push_back(
          arena_plan.book(fmt::format("activations of stage {}, block {}", stage, i), MemoryUse::kActivations, chunk.block_bytes));
    }
    chunk.blocks.resize(chunk.block_slots.size());
  }
  static constexpr std::array<const char*, kNumRegions> kNames = {"", "recomputed activations", "kept gradients", "scratch", "workspace"};
  for (std::size_t r = 0; r < region_bytes_.size(); ++r) {
    if (r == kSaved) continue;
    const MemoryUse use = static_cast<Region>(r) == Region::kRecomputed ? MemoryUse::kActivations : MemoryUse::kWorkspace;
    region_slots_[r] = arena_plan.book(kNames[r], use, region_bytes_[r]);
  }
  const auto book = [&](Boundary& boundary, const std::string& name) {
    boundary.slot = arena_plan.book(name, MemoryUse::kCommunication, activation_bytes);
  };
  activation_receives_.resize(static_cast<std::size_t>(activation_receives));
  gradient_receives_.resize(static_cast<std::size_t>(gradient_receives));
  for (std::size_t i = 0; i < activation_receives_.size(); ++i) book(activation_receives_[i], fmt::format("received activations {}", i));
  for (std::size_t i = 0; i < gradient_receives_.size(); ++i) book(gradient_receives_[i], fmt::format("received gradients {}", i));
  for (std::size_t i = 0; i < gradients_.size(); ++i) book(gradients_[i], fmt::format("activation gradients {}", i));
  if (num_virtual_stages_ > 1) {
    for (std::size_t i = 0; i < sends_.size(); ++i) book(sends_[i], fmt::format("sent activations {}", i));
  }
  std::size_t most = 0;
  for (const StepProgram* program : programs) {
    for (const auto& slots : program->activation_slots) most = std::max(most, slots.size());
  }
  pending_activation_.assign(chunks_.size(), std::vector<int>(most, Instruction::kNone));
  pending_gradient_ = pending_activation_;
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
  constants_.bind(arena);
  const auto bytes = [&](ArenaSlot slot) { return arena.grant(slot, DType::kU8, Shape{slot.bytes}).data(); };
  const auto activation = [&](ArenaSlot slot) { return arena.grant(slot, geometry_.compute, activation_shape_); };
  for (Chunk& chunk : chunks_) {
    for (std::size_t i = 0; i < chunk.blocks.size(); ++i) chunk.blocks[i] = bytes(chunk.block_slots[i]);
  }
  for (std::size_t r = 0; r < regions_.size(); ++r) {
    if (r != kSaved) regions_[r] = bytes(region_slots_[r]);
  }
  for (Boundary& b : activation_receives_) b.view = activation(b.slot);
  for (Boundary& b : gradient_receives_) b.view = activation(b.slot);
  for (Boundary& b : gradients_) b.view = activation(b.slot);
  if (num_virtual_stages_ > 1) {
    for (Boundary& b : sends_) b.view = activation(b.slot);
  }
}

void Stage::set_micro_batches(std::span<const MicroBatch> micro_batches, const StepProgram& program) {
  micro_batches_ = micro_batches;
  program_ = &program;
}

// ---- finding things -------------------------------------------------------------------------------------------------------------

Stage::Chunk& Stage::chunk_of(int virtual_stage) {
  return chunks_[static_cast<std::size_t>(virtual_stage / context_.grid().degrees().pipeline)];
}

bool Stage::is_local(int virtual_stage) const {
  return virtual_stage >= 0 && virtual_stage < num_virtual_stages_ &&
         virtual_stage % context_.grid().degrees().pipeline == context_.coordinates().pipeline;
}

Stage::UnitPart& Stage::part_of(Chunk& chunk, int unit, std::size_t& index) {
  index = static_cast<std::size_t>(unit - chunk.units.front().unit);  // units of a stage are consecutive
  return chunk.units[index];
}

std::byte* Stage::block(Chunk& chunk, int micro_batch) const {
  return chunk.blocks[static_cast<std::size_t>(program_->activation_slot(chunk.virtual_stage, micro_batch))];
}

TensorView Stage::input_of(Chunk& chunk, std::size_t index, int micro_batch) const {
  const UnitPart& part = chunk.units[index];
  if (part.unit == 0) return TensorView();  // the embedding reads tokens
  return {block(chunk, micro_batch) + part.input_offset, geometry_.compute, activation_shape_};
}

// Where unit number `index` of the chunk writes: the next unit's input, or a buffer that the next virtual stage gets it from.
TensorView Stage::output_of(Chunk& chunk, std::size_t index, int micro_batch) {
  if (index + 1 < chunk.units.size()) return input_of(chunk, index + 1, micro_batch);
  if (is_last(chunk.virtual_stage)) return TensorView();  // the head writes the loss
  current_send_ = (current_send_ + 1) % sends_.size();
  context_.compute_stream().wait(sends_[current_send_].message);  // its last message must have left
  return sends_[current_send_].view;
}

LayerRun Stage::run_of(const UnitPart& part, std::byte* block, int micro_batch) const {
  LayerRun run{{.ops = context_.device().ops(),
                .stream = context_.compute_stream(),
                .tensor = context_.tensor(),
                .store = *store_,
                .unit = part.unit,
                .base = regions_,
                .workspace_bytes = region_bytes_[static_cast<std::size_t>(Region::kWorkspace)]},
               micro_batches_[static_cast<std::size_t>(micro_batch)],
               constants_};
  run.base[kSaved] = block + part.saved_offset;
  return run;
}

void Stage::copy(TensorView out, ConstTensorView in) const { context_.device().ops().convert(context_.compute_stream(), out, in); }

// ---- computing ---------------------------------------------------------------------------------------------------------------------

void Stage::forward(const Instruction& instruction) {
  Chunk& chunk = chunk_of(instruction.virtual_stage);
  std::size_t index = 0;
  const UnitPart& part = part_of(chunk, instruction.unit, index);
  const int mb = instruction.micro_batch;
  const TensorView x = input_of(chunk, index, mb);
  if (index == 0 && is_local(chunk.virtual_stage - 1)) {
    copy(x, sends_[current_send_].view);  // the forward of this rank before this one made it
  } else if (index == 0 && !is_first(chunk.virtual_stage)) {
    const int slot = pending_activation_[static_cast<std::size_t>(&chunk - chunks_.data())][static_cast<std::size_t>(mb)];
    const Boundary& received = activation_receives_[static_cast<std::size_t>(slot)];
    context_.compute_stream().wait(received.message);
    copy(x, received.view);  // the receive buffer is free again
  }
  part.layer->forward(run_of(part, block(chunk, mb), mb), x, output_of(chunk, index, mb));
}

void Stage::backward(const Instruction& instruction) {
  Chunk& chunk = chunk_of(instruction.virtual_stage);
  std::size_t index = 0;
  const UnitPart& part = part_of(chunk, instruction.unit, index);
  const int mb = instruction.micro_batch;
  if (index + 1 == chunk.units.size()) {  // the first backward of this micro-batch here: take a gradient buffer and fill it
    const TensorView from_next_chunk = gradients_[current_gradient_].view;
    current_gradient_ = (current_gradient_ + 1) % gradients_.size();
    context_.compute_stream().wait(gradients_[current_gradient_].message);
    const TensorView d = gradients_[current_gradient_].view;
    if (is_local(chunk.virtual_stage + 1)) {
      copy(d, from_next_chunk);  // it has just been computed there
    } else if (!is_last(chunk.virtual_stage)) {
      const int slot = pending_gradient_[static_cast<std::size_t>(&chunk - chunks_.data())][static_cast<std::size_t>(mb)];
      const Boundary& received = gradient_receives_[static_cast<std::size_t>(slot)];
      context_.compute_stream().wait(received.message);
      copy(d, received.view);
    }
  }
  const LayerRun run = run_of(part, block(chunk, mb), mb);
  const TensorView x = input_of(chunk, index, mb);
  if (geometry_.recompute != RecomputePolicy::kNone) part.layer->recompute(run, x);
  part.layer->backward_input(run, x, gradients_[current_gradient_].view);
  part.layer->backward_weight(run, x);
}

// ---- messages ------------------------------------------------------------------------------------------------------------------------

void Stage::send_activation(const Instruction& instruction) {
  Boundary& boundary = sends_[current_send_];  // written by the forward just before
  Stream& stream = context_.send_stream(/*forward=*/true);
  stream.wait(context_.compute_stream().record());
  context_.pipeline_forward().send(stream, boundary.view, instruction.peer);
  boundary.message = stream.record();
}

void Stage::recv_activation(const Instruction& instruction) {
  Boundary& boundary = activation_receives_[static_cast<std::size_t>(instruction.slot)];
  Stream& stream = context_.recv_stream(/*forward=*/true);
  stream.wait(context_.compute_stream().record());  // the forward that read this buffer before
  context_.pipeline_forward().recv(stream, boundary.view, instruction.peer);
  boundary.message = stream.record();
  const Chunk& chunk = chunk_of(instruction.virtual_stage);
  pending_activation_[static_cast<std::size_t>(&chunk - chunks_.data())][static_cast<std::size_t>(instruction.micro_batch)] = instruction.slot;
}

void Stage::send_gradient(const Instruction& instruction) {
  Boundary& boundary = gradients_[current_gradient_];
  Stream& stream = context_.send_stream(/*forward=*/false);
  stream.wait(context_.compute_stream().record());
  context_.pipeline_backward().send(stream, boundary.view, instruction.peer);
  boundary.message = stream.record();
}

void Stage::recv_gradient(const Instruction& instruction) {
  Boundary& boundary = gradient_receives_[static_cast<std::size_t>(instruction.slot)];
  Stream& stream = context_.recv_stream(/*forward=*/false);
  stream.wait(context_.compute_stream().record());
  context_.pipeline_backward().recv(stream, boundary.view, instruction.peer);
  boundary.message = stream.record();
  const Chunk& chunk = chunk_of(instruction.virtual_stage);
  pending_gradient_[static_cast<std::size_t>(&chunk - chunks_.data())][static_cast<std::size_t>(instruction.micro_batch)] = instruction.slot;
}

}  // namespace trident
