// The kinds of work by which times and FLOPs of operations are added up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trident {

// kRows: norms, activations, biases, residuals, dropout. kHeads: between rows and heads, rotation.
enum class WorkKind : std::uint8_t { kMatmuls, kAttention, kHeads, kRows, kEmbedding, kLoss, kCopies, kOptimizer };
inline constexpr std::size_t kNumWorkKinds = 8;

}  // namespace trident
