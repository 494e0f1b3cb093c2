#include "pipeline/stage.h"

#include <cstdint>
#include <utility>

#include "core/at.h"
#include "device/operations.h"
#include "device/ops.h"
#include "pipeline/stage_regions.h"

namespace trident {

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
  geometry_.tensor_degree == 1 ? context_.device().run_capturable(calls) : calls();
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
    split ? part.layer->backward_input(p, x, d) : part.layer->backward(p, x, d);
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
