// Upper bounds on the workspaces of a GPU's matmuls and attention, known without the GPU.
#pragma once

#include <cstdint>

#include "device/op_values.h"

namespace trident {

// Products take no more, on one stream: what Hopper's large ones want.
inline constexpr std::int64_t kGpuProductWorkspace = std::int64_t{32} << 20;
// Deterministic attention works in pieces whose score gradients take no more, unless one key/value head's do.
inline constexpr std::int64_t kGpuScoreGradients = std::int64_t{256} << 20;

// Bytes for forward and backward: row sums, key and value gradients of every query head in f32, and in a piece the gradients of
// scores (cuDNN's deterministic backward) or query gradients in f32 (the other). cuDNN says this of no graph; held against the
// plans that it makes (tests/cuda/plans).
std::int64_t gpu_attention_workspace(const AttentionShape& shape, bool deterministic);

}  // namespace trident
