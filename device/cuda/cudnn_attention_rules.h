// Which attention goes to cuDNN and in which pieces: pure functions of the shape and the GPU's generation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "device/gpu_workspaces.h"
#include "device/cuda/cudnn_attention_graphs.h"

namespace trident {

// "9.19.0", from the number that cudnnGetVersion() gives (91900).
std::string cudnn_version_text(std::size_t version);
// Why attention must not run on cuDNN of this version, and what to do; nothing if it may.
std::optional<std::string> cudnn_version_problem(std::size_t version);

struct CudnnAttentionOptions {
  Determinism determinism = Determinism::kRequired;
  // A deterministic backward runs in pieces so that d_score takes no more than this, if one key/value head's does not.
  std::int64_t d_score_bytes = kGpuScoreGradients;
};

enum class AttentionDirection : std::uint8_t { kForward, kBackward };

// One direction of one shape.
struct AttentionPass {
  bool by_cudnn = true;
  std::string why_not;  // where cuDNN does not take the shape
  AttentionShape
      piece;  // what a graph is made for: consecutive samples, or consecutive key/value heads as samples of one head each
  std::int64_t pieces = 1;
};

// `compute_major`: of the GPU's compute capability; `cudnn`: the library's version. Its limits are those of its frontend 1.23 for
// cuDNN 9.10.2 to 9.19, and where it is known to compute nonsense.
AttentionPass attention_pass(const AttentionShape& shape, AttentionDirection direction, int compute_major, std::size_t cudnn,
                             const CudnnAttentionOptions& options);

}  // namespace trident
