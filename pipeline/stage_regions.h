// Which regions of a pass a stage places how: for the two halves of stage.h and for cached_stage.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include <fmt/format.h>

#include "device/arena.h"
#include "tensor_parallel/layer_plan.h"

namespace trident {

inline constexpr auto kSaved = static_cast<std::size_t>(Region::kSaved), kSavedForW = static_cast<std::size_t>(Region::kSavedForW),
                      kDerived = static_cast<std::size_t>(Region::kDerived);
// True for a region of each micro-batch.
constexpr bool is_saved(std::size_t region) { return region == kSaved || region == kSavedForW; }
// True for a region that all units share.
constexpr bool is_shared(std::size_t region) { return !is_saved(region) && region != kDerived; }
// Arenas report the bytes of such a region under this use.
constexpr MemoryUse use_of_shared(std::size_t region) {
  const auto it = static_cast<Region>(region);
  return it == Region::kRecomputed || it == Region::kRecomputedForW ? MemoryUse::kActivations : MemoryUse::kWorkspace;
}
// The name of a unit's own region.
inline std::string derived_name(int unit) { return fmt::format("derived from weights of unit {}", unit); }
// The regions in which backward_input leaves tensors for backward_weight.
inline constexpr std::array kFromInputToWeight = {static_cast<std::size_t>(Region::kRecomputedForW),
                                                  static_cast<std::size_t>(Region::kKept)};

}  // namespace trident
