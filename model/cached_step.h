// Tokens whose predecessors were seen in earlier passes: their keys and values are kept, one place per position (a KV cache).
//
// A pass of S rows and B samples has, of sample b, the tokens at positions first[b] .. first[b] + count[b] - 1 in rows 0 ..
// count[b] - 1; the rows after those are padding, whose results nobody reads. Attention stores the tokens' keys and values and
// looks at all positions up to each row's own. So keys and values are valid up to the last token, whatever else lies in the cache,
// if it is finite.
//
// A layer with a window that hides some of the text keeps what its next tokens see, and what the room behind that takes: places
// count from a position of the sample's own, which grows when the last of what lies there moves to the front.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor_view.h"

namespace trident {

// The cache of one block: T[B,K,capacity of its kind,D], this rank's key/value heads.
struct LayerCache {
  TensorView keys, values;
};

// Where a pass's tokens lie in the caches of one kind of layer.
struct CachePlaces {
  std::int64_t capacity = 0;            // places; first + count is at most that
  std::span<const std::int64_t> first;  // [B], host memory: the place of the first token
  // [B], likewise, or empty: over 0, `first` places from that on move to the front before; they do not overlap.
  std::span<const std::int64_t> moved = {};
};

struct CachedStep {
  CachePlaces all, window;              // window: of layers that slide, first_key_in_window says what they see; capacity 0: as all
  std::span<const std::int64_t> count;  // [B], host memory; 1 .. S
  std::span<const LayerCache> caches;   // by unit; of the blocks that the rank holds
  TensorView logits;                    // f32 [B, padded V/t], of each sample's last token: overwritten by the head
};

}  // namespace trident
