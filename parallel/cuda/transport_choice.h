// How ranks exchange what lies on their devices, and which way is taken. In every build, with CUDA or without.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/named_enum.h"

namespace trident {

// How ranks exchange what lies on their devices.
enum class DeviceTransport : std::uint8_t {
  kThread,      // ranks are threads of one process: kernels read peers' memory and add in rank order
  kHostStaged,  // through pinned host memory and the host's communicator: several processes on one GPU, nodes without NCCL
  kNccl,        // a GPU per rank; a rank alone in its group copies
  kNcclEvenAlone  // the same, and a rank alone calls NCCL too: to measure it, or try it out
};
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<DeviceTransport>{
    "between threads on the device", "through pinned host memory", "by NCCL", "by NCCL"};

struct TransportChoice {
  DeviceTransport transport = DeviceTransport::kThread;
  std::string why;  // "8 processes share 2 GPUs"; for one line of the log
};

// Chooses for so many processes on so many GPUs: NCCL if each has one of its own, else through the host.
TransportChoice choose_transport(std::size_t processes, std::size_t gpus);

}  // namespace trident
