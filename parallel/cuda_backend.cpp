#include "parallel/cuda_backend.h"

#include <fmt/core.h>

#include <set>

namespace trident {

std::string_view to_string(DeviceTransport transport) {
  switch (transport) {
    case DeviceTransport::kThread: return "between threads on the device";
    case DeviceTransport::kHostStaged: return "through pinned host memory";
    case DeviceTransport::kNccl:
    case DeviceTransport::kNcclEvenAlone: return "by NCCL";
  }
  return "?";
}

TransportChoice choose_transport(const std::vector<std::string>& cards) {
  const std::size_t ranks = cards.size(), different = std::set<std::string>(cards.begin(), cards.end()).size();
  if (different < ranks)
    return {DeviceTransport::kHostStaged, fmt::format("{} processes share {} {}", ranks, different, different == 1 ? "card" : "cards")};
  return {DeviceTransport::kNccl, fmt::format("each of the {} processes has a card of its own", ranks)};
}

}  // namespace trident
