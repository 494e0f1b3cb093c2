// Which layers run on which virtual stage.
//
// A model is a list of units: 0 is the embedding, 1..L the blocks, L+1 the head (final norm, output projection, loss). A unit
// is also what ZeRO gathers and reduces at once. Stages take consecutive units, at least one block each; the embedding belongs
// to the first stage, the head to the last.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trident {

using UnitsOfStage = std::vector<std::vector<int>>;  // [virtual stage] -> unit ids, ascending

// Balanced by cost. unit_costs: L+2 numbers >= 0, any unit of measure. The most expensive stage is as cheap as possible; among
// those partitions the sum of squared stage costs is least (no stage needlessly idle), and then the first stages, which hold
// the most micro-batches, get the fewest blocks.
// Throws ConfigError naming `parallel.pipeline` and `parallel.virtual_stages` if there are fewer blocks than virtual stages.
UnitsOfStage partition_balanced(std::span<const double> unit_costs, int pipeline, int virtual_stages);

// By `parallel.layers`: the number of blocks of each virtual stage in model order.
// Throws ConfigError unless there are pipeline * virtual_stages counts, each at least 1, that add up to num_layers.
UnitsOfStage partition_explicit(std::span<const std::int64_t> layers, int num_layers, int pipeline, int virtual_stages);

}  // namespace trident
