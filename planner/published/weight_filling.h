// Split backwards: given in which order a rank runs forwards and input gradients, where its weight gradients go.
#pragma once

#include <optional>

#include "planner/published/placed_schedule.h"

namespace trident {

struct WeightFilling {
  // The most that a rank may hold, in peak_activations' units, with this `weight_share`.
  double limit = 0;
  double weight_share = 1;
  // A weight gradient runs when the rank would otherwise wait longer than this share of that one's time (and when memory demands
  // it, and when nothing else is left).
  double threshold = 0.5;
};

// `placed` with a kBackwardWeight for each of its kBackwardInputs; it has no other backwards. Weight gradients of a rank run in the
// order of its input gradients, so that those of a virtual stage are in ascending order if the input gradients are. Times decide
// where they go. Nothing when the limit is too small for the order of `placed`, or that order blocks.
std::optional<PlacedSchedule> fill_weight_gradients(const PlacedSchedule& placed, const StageTimes& times,
                                                    const WeightFilling& filling);

}  // namespace trident
