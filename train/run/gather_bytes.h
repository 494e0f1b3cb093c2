// Small things of every rank brought together, between steps, from any memory: what travels is cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "parallel/communicator/communicator.h"
#include "train/log/extremes.h"

namespace trident {

// Collective. The sum or the maximum of the ranks' numbers, on every rank.
std::int64_t over_ranks(Communicator& world, Stream& stream, std::int64_t mine, ReduceOp op);
// Collective; on every rank.
Extremes extremes_of(Communicator& world, Stream& stream, double mine);
// Collective. The first rank for which `is` holds, or -1, on every rank.
int first_rank(Communicator& world, Stream& stream, bool is);

// Collective. On rank 0: every rank's text, by rank; empty elsewhere. Texts come up a binomial tree: a rank sends once and receives
// from at most log2 of the ranks, and holds the texts of those below it. For lines.
std::vector<std::string> gather_texts(Communicator& world, Stream& stream, const std::string& mine);

// Collective. The text of `root`, on every rank. For lines.
std::string broadcast_text(Communicator& world, Stream& stream, const std::string& mine, int root);

// Collective, on the device's host stream. On rank 0 `take` is called for each rank in order, itself first; its bytes live as long
// as the call. Each rank sends to rank 0 alone, which holds the bytes of one other rank at a time; the others wait for their turn.
// For what is too large to be held.
void gather_bytes(Communicator& world, Device& device, std::span<const std::byte> mine,
                  const std::function<void(int rank, std::span<const std::byte>)>& take);

}  // namespace trident
