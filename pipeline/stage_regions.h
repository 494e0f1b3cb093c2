// Which regions of a pass a stage places how: for the two halves of stage.h and for cached_stage.cpp.
#pragma once

#include <array>
#include <cstddef>

#include "tensor_parallel/layer_plan.h"

namespace trident {

inline constexpr auto kSaved = static_cast<std::size_t>(Region::kSaved), kSavedForW = static_cast<std::size_t>(Region::kSavedForW);
// True for a region of each micro-batch; the other regions are shared by all.
constexpr bool is_saved(std::size_t region) { return region == kSaved || region == kSavedForW; }
// The regions in which backward_input leaves tensors for backward_weight.
inline constexpr std::array kFromInputToWeight = {static_cast<std::size_t>(Region::kRecomputedForW),
                                                  static_cast<std::size_t>(Region::kKept)};

}  // namespace trident
