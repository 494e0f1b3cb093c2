// What a rank will do, found by letting it do it: its RankTrainer, constructed and stepped on a device that only counts (device/dry)
// in a world without peers. The plan of its memory and its traffic are what came of that, not a second account of the layers.
#pragma once

#include <array>
#include <cstdint>

#include "device/arena.h"
#include "device/ops.h"
#include "parallel/process_grid.h"
#include "train/run_plan.h"

namespace trident {

struct DryRun {
  ArenaPlan arena;                                      // the same, entry by entry, as the rank's own
  std::array<double, kNumAxes> bytes_sent{};            // by the rank, in one training step, by axis
};

// One training step of rank `rank` of plan.world_size(). `oracle`: the operations of the device that the rank would have, on the
// thread that made them; it is asked for workspaces and computes nothing. Without one the arena has no workspaces of products and attention
// in it; the traffic does not depend on them. Reads no data, draws no weights, needs no memory of the arena's size.
DryRun dry_step(const RunPlan& plan, int rank, Ops* oracle);

// Logical bytes sent in one training step, summed over all ranks, by axis (docs/communication.md): of each stage one rank is run, and
// stands for the others.
std::array<double, kNumAxes> dry_bytes_sent(const RunPlan& plan);

}  // namespace trident
