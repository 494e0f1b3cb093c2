// Tokens whose predecessors were seen in earlier passes: their keys and values are kept, one place per position (a KV cache).
//
// A pass of S rows and B samples has, of sample b, the tokens at positions first[b] .. first[b] + count[b] - 1 in rows 0 ..
// count[b] - 1; the rows after those are padding, whose results nobody reads. Attention stores the tokens' keys and values and
// looks at all positions up to each row's own. So keys and values are valid up to the last token, whatever else lies in the cache,
// if it is finite.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor_view.h"

namespace trident {

// The cache of one block: T[B,K,capacity,D], this rank's key/value heads.
struct LayerCache {
  TensorView keys, values;
};

struct CachedStep {
  std::int64_t capacity = 0;            // positions that the cache has places for; first + count is at most that
  std::span<const std::int64_t> first;  // [B], host memory
  std::span<const std::int64_t> count;  // [B], likewise; 1 .. S
  std::span<const LayerCache> caches;   // by unit; of the blocks that the rank holds
  TensorView logits;                    // f32 [B, padded V/t], of each sample's last token: overwritten by the head
};

}  // namespace trident
