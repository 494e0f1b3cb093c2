#include "model/model_constants.h"

#include <vector>

#include "core/bf16.h"
#include "core/f16.h"
#include "device/operations.h"
#include "device/ops.h"
#include "model/config/rope_table.h"

namespace trident {

ModelConstants::ModelConstants(const ModelConfig& config, const LayerGeometry& geometry, ArenaPlan& plan, Lengths lengths)
    : config_(config),
      sequence_(geometry.sequence),
      compute_(geometry.compute),
      growing_(lengths == Lengths::kGrowing && turns_by_length(config.rope, geometry.sequence)),
      rotates_(config.position == PositionKind::kRope),
      plain_norm_(config.norm == NormKind::kPlainLayerNorm) {
  const std::int64_t original = config.rope.original_max_positions;
  if (rotates_ && lengths != Lengths::kOne && config.rope.scaling == RopeScaling::kLongRope && sequence_ > original)
    short_rows_ = original;
  if (rotates_) {
    const Shape shape{sequence_ + short_rows_, config.rotary_dim() / 2};
    cos_ = {plan, "rope.cos", MemoryUse::kParameters, DType::kF32, shape};
    sin_ = {plan, "rope.sin", MemoryUse::kParameters, DType::kF32, shape};
  }
  if (plain_norm_) {
    ones_ = {plan, "norm.ones", MemoryUse::kParameters, compute_, {config.hidden}};
    zeros_ = {plan, "norm.zeros", MemoryUse::kParameters, compute_, {config.hidden}};
  }
}

void ModelConstants::bind(Arena& arena, Device& device) {
  Stream& stream = device.compute_stream();
  for (BookedTensor* const tensor : {&cos_, &sin_, &ones_, &zeros_}) tensor->bind(arena);
  if (rotates_ && device.has_bytes()) {  // a table of long contexts takes seconds and gigabytes
    RopeTable table = growing_ ? make_growing_rope_table(config_, sequence_) : make_rope_table(config_, sequence_);
    const RopeTable of_short = make_rope_table(config_, short_rows_);
    table.cos.insert(table.cos.end(), of_short.cos.begin(), of_short.cos.end());
    table.sin.insert(table.sin.end(), of_short.sin.begin(), of_short.sin.end());
    device.write(stream, cos_, table.cos.data());
    device.write(stream, sin_, table.sin.data());
  }
  if (plain_norm_) {
    const auto width = static_cast<std::size_t>(config_.hidden);
    if (compute_ == DType::kF32) {
      device.write(stream, ones_, std::vector(width, 1.0f).data());
    } else if (compute_ == DType::kBF16) {
      device.write(stream, ones_, std::vector(width, to_bf16(1.0f)).data());
    } else {
      device.write(stream, ones_, std::vector(width, to_f16(1.0f)).data());
    }
    device.ops().run(stream, op::FillZero{.out = zeros_});
  }
}

}  // namespace trident
