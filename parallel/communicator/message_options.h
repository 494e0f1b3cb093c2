// Sizes that decide how collectives become messages; equal on all ranks of a world.
#pragma once

#include <cstdint>

namespace trident {

// In groups of up to so many nodes what ranks call is compared in every collective (n ranks exchange n (n - 1) headers); in larger
// ones once per step.
inline constexpr int kMostGreeted = 8;

struct MessageOptions {
  // Summands travel in pieces of at most chunk_bytes; room for two from every peer is staged, in all at most staging_bytes of a
  // communicator (chunks shrink for that, to no less than 512 bytes or chunk_bytes). Sums of a node that wait for those of other
  // nodes take up to as much again.
  std::int64_t chunk_bytes = 4 << 20;
  std::int64_t staging_bytes = 16 << 20;
  // Operands of an all_reduce or broadcast up to this size take the way with the fewest messages in a row.
  std::int64_t small_bytes = 16 << 10;
  // The longest message.
  std::int64_t message_bytes = 1 << 30;
};

}  // namespace trident
