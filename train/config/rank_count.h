// How many ranks a configuration's degrees make. Options keep each degree at or below 2^16 and context at 1, so that no product
// overflows; how many can be planned or run is another matter, and checked by who does it.
#pragma once

#include <cstdint>

#include "train/config/train_config.h"

namespace trident {

// Ranks that hold one copy of the model together: tensor x context x pipeline.
inline std::int64_t ranks_of_a_replica(const ParallelConfig& parallel) {
  return parallel.tensor * parallel.context * parallel.pipeline;
}

// Ranks of the job; replicas that are "auto" count as one.
inline std::int64_t ranks_of(const ParallelConfig& parallel) { return ranks_of_a_replica(parallel) * parallel.data.value_or(1); }

}  // namespace trident
