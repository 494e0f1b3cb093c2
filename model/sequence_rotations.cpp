#include "model/sequence_rotations.h"

#include "core/check.h"
#include "model/config/rope_table.h"

namespace trident {

SequenceRotations::SequenceRotations(const ModelConfig& config, std::int64_t tables, std::int64_t rows, ArenaPlan& plan)
    : config_(config), rows_(rows) {
  if (config.position != PositionKind::kRope || !turns_by_length(config.rope, rows)) return;
  tables_ = tables;
  const Shape shape{tables * rows, config.rotary_dim() / 2};
  cos_ = {plan, "rope.cos by sequence", MemoryUse::kData, DType::kF32, shape};
  sin_ = {plan, "rope.sin by sequence", MemoryUse::kData, DType::kF32, shape};
}

void SequenceRotations::bind(Arena& arena) {
  cos_.bind(arena);
  sin_.bind(arena);
  tokens_.assign(static_cast<std::size_t>(tables_), 0);
}

void SequenceRotations::set(std::int64_t table, std::int64_t tokens, Device& device) {
  TRIDENT_CHECK(tokens >= 0 && tokens <= rows_, "{} tokens in a table of {} rows", tokens, rows_);
  std::int64_t& before = tokens_.at(static_cast<std::size_t>(table));
  if (before == tokens || !device.has_bytes()) return;
  before = tokens;
  const RopeTable made = make_rope_table(config_, tokens);
  device.write(device.compute_stream(), cos_.rows(table * rows_, tokens), made.cos.data());
  device.write(device.compute_stream(), sin_.rows(table * rows_, tokens), made.sin.data());
}

}  // namespace trident
