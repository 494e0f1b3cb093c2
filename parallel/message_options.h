// Sizes that decide how collectives become messages; equal on all ranks of a world.
#pragma once

#include <cstdint>

namespace trident {

struct MessageOptions {
  // Summands travel in pieces of at most chunk_bytes; room for two from every peer is staged, in all at most staging_bytes
  // (chunks shrink for that, to no less than 4 KiB or chunk_bytes).
  std::int64_t chunk_bytes = 4 << 20;
  std::int64_t staging_bytes = 32 << 20;
  // Operands of an all_reduce or broadcast up to this size take the way with the fewest messages in a row.
  std::int64_t small_bytes = 16 << 10;
  // The longest message.
  std::int64_t message_bytes = 1 << 30;
};

}  // namespace trident
