// Attention on the CPU: cuts it into tasks for the rank's compute threads, whose work attention_tiles.h does.
//
// Each (sample, key/value head) is computed by itself, in tiles that depend on lengths and head width alone, so a head's numbers do
// not depend on how many heads a rank holds, nor on how many threads.
#pragma once

#include <cstdint>

#include "device/cpu/attention_tiles.h"
#include "device/ops.h"

namespace trident {

class CpuAttention {
 public:
  // `bf16_pairs`: the processor multiplies pairs of bf16 faster than f32.
  CpuAttention(IsaLevel level, bool bf16_pairs);

  // Of either pass, with the calling rank's compute threads, in bytes.
  std::int64_t workspace_bytes(const AttentionShape& shape) const;
  // Shapes, dtypes and what first_key holds as in device/ops.h; checked by the caller.
  void forward(const AttentionShape& shape, TensorView out, TensorView lse, ConstTensorView q, ConstTensorView k, ConstTensorView v,
               ConstTensorView first_key, std::byte* workspace) const;
  void backward(const AttentionShape& shape, TensorView d_q, TensorView d_k, TensorView d_v, ConstTensorView d_out,
                ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView lse,
                ConstTensorView first_key, std::byte* workspace) const;

 private:
  const AttentionTiles& tiles(DType dtype) const { return dtype == DType::kBF16 ? bf16_tiles_ : tiles_; }

  AttentionTiles tiles_, bf16_tiles_;
};

}  // namespace trident
