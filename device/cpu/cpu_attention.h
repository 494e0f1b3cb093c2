// Attention on the CPU: cuts it into tasks for the rank's compute threads, whose work attention_tiles.h does.
//
// Each (sample, key/value head) is computed by itself, in tiles that depend on lengths and head width alone, so a head's numbers do
// not depend on how many heads a rank holds, nor on how many threads.
#pragma once

#include <cstdint>

#include "device/cpu/attention_tiles.h"
#include "device/operations.h"

namespace trident {

class CpuAttention {
 public:
  // `bf16_pairs`: the processor multiplies pairs of bf16 faster than f32.
  CpuAttention(IsaLevel level, bool bf16_pairs);

  // Returns the workspace that any pass needs with the calling rank's compute threads, in bytes.
  std::int64_t workspace_bytes(const AttentionShape& shape) const;
  // Operands and the room for the workspace are checked by the caller.
  void run(const op::AttentionForward& attention) const;
  void run(const op::CachedAttention& attention) const;
  void run(const op::AttentionBackward& attention) const;

 private:
  const AttentionTiles& tiles(DType dtype) const { return dtype == DType::kBF16 ? bf16_tiles_ : tiles_; }
  // Samples from `sample` on, as many as `shape` has.
  template <class Forward>
  void run_forward(const Forward& attention, const AttentionShape& shape, std::int64_t sample) const;

  const RowKernels& kernels_;  // of one thread
  AttentionTiles tiles_, bf16_tiles_;
};

// The workspace with `threads` threads on any processor, at most.
std::int64_t largest_attention_workspace(const AttentionShape& shape, std::int64_t threads);

}  // namespace trident
