// How long the program of a step may be.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trident {

// Programs are lists that every rank keeps; so many passes through a unit take seconds to lay out and check.
inline constexpr std::int64_t kMostPasses = 1 << 20;

// Micro-batches of a step that a model of so many units can have on a data-parallel rank; at least one.
constexpr std::int64_t most_micro_batches(std::int64_t units) { return std::max<std::int64_t>(1, kMostPasses / units); }

}  // namespace trident
