// Random tokens, for benchmarks.
#pragma once

#include <cstdint>

#include "train/run/batch_buffers.h"

namespace trident {

// Token s of a sample is word s % 4 of its counter block s / 4.
LoadSamples random_samples(std::int64_t vocabulary, std::int64_t sequence);

}  // namespace trident
