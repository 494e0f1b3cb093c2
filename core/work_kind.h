// The kinds of work by which times and FLOPs of operations are added up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/named_enum.h"

namespace trident {

// kRows: norms, activations, biases, residuals, dropout. kHeads: between rows and heads, rotation.
enum class WorkKind : std::uint8_t { kMatmuls, kAttention, kHeads, kRows, kEmbedding, kLoss, kCopies, kOptimizer };
template <>
inline constexpr std::array<std::string_view, 8> kNamesOf<WorkKind>{
    "products", "attention", "heads", "rows", "embedding", "loss", "copies", "optimizer"};
inline constexpr std::size_t kNumWorkKinds = 8;

}  // namespace trident
