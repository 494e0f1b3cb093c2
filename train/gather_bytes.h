// Small things of every rank brought together, between steps. What travels is cut into pieces that communicators carry from any memory.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "parallel/communicator.h"

namespace trident {

// Collective. Every rank's value, by rank, on every rank.
std::vector<double> gather_values(Communicator& world, Stream& stream, double mine);

// Collective. On rank 0 `take` is called for each rank in order, itself first; its bytes live as long as the call.
// A rank holds the bytes of one other rank at a time.
void gather_bytes(Communicator& world, Stream& stream, std::span<const std::byte> mine, const std::function<void(int rank, std::span<const std::byte>)>& take);

}  // namespace trident
