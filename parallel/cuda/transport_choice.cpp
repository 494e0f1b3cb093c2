#include "parallel/cuda/transport_choice.h"

#include <fmt/core.h>

namespace trident {

TransportChoice choose_transport(std::size_t processes, std::size_t gpus) {
  if (gpus < processes)
    return {DeviceTransport::kHostStaged, fmt::format("{} processes share {} {}", processes, gpus, gpus == 1 ? "GPU" : "GPUs")};
  if (processes == 1) return {DeviceTransport::kNccl, "the process has a GPU of its own"};
  return {DeviceTransport::kNccl, fmt::format("each of the {} processes has a GPU of its own", processes)};
}

}  // namespace trident
