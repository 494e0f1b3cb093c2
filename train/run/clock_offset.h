// The offsets between monotonic clocks of ranks, which lay the times of several machines side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "device/device.h"
#include "parallel/communicator/communicator.h"
#include "train/log/trace_writer.h"

namespace trident {

// Equal for processes that read the same monotonic clock: the machine since its start, in this time namespace.
std::uint64_t clock_identity();

// Collective. On rank 0: by rank, what to add to its clock; empty elsewhere. Ranks with rank 0's identity need nothing; of each other clock
// the first rank answers kPings short messages, and the fastest round trip says the offset, to within half its duration.
inline constexpr int kPings = 16;
std::vector<ClockOffset> estimate_clock_offsets(Communicator& world, Device& device, std::uint64_t identity, const std::function<double()>& clock);

}  // namespace trident
