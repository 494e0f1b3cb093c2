// How a call is cut into pieces that fit a staging buffer.
#pragma once

#include <cstdint>

#include "parallel/communicator/collective_call.h"

namespace trident {

// Chunk c takes elements [c * step, min((c + 1) * step, slice)) of every one of the operand's `slices` slices of `slice` elements.
struct StagedCut {
  std::int64_t slices = 1, slice = 0, step = 0, chunks = 0;

  std::int64_t begin(std::int64_t chunk) const { return chunk * step; }
  std::int64_t count(std::int64_t chunk) const { return chunk + 1 < chunks ? step : slice - begin(chunk); }
};

// For a slot of `slot_bytes` bytes, which holds all slices of a chunk, of an all_to_all both those that leave and those that come.
// InternalError if not even one element of each fits.
StagedCut cut_for_staging(const CollectiveCall& call, int ranks, std::int64_t slot_bytes);

}  // namespace trident
