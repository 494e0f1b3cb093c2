// Small things of every rank brought together, between steps, from any memory: what travels is cut into pieces.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "device/device.h"
#include "parallel/communicator.h"

namespace trident {

// Collective. Every rank's value, by rank, on every rank.
std::vector<double> gather_values(Communicator& world, Stream& stream, double mine);

// Collective, on the device's host stream. On rank 0 `take` is called for each rank in order, itself first; its bytes live as long as
// the call. Each rank sends to rank 0 alone, which holds the bytes of one other rank at a time; the others wait for their turn.
void gather_bytes(Communicator& world, Device& device, std::span<const std::byte> mine,
                  const std::function<void(int rank, std::span<const std::byte>)>& take);

}  // namespace trident
