#include "parallel/cuda/transport_choice.h"

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
  return choose_transport(cards.size(), std::set<std::string>(cards.begin(), cards.end()).size());
}

TransportChoice choose_transport(std::size_t processes, std::size_t cards) {
  if (cards < processes)
    return {DeviceTransport::kHostStaged, fmt::format("{} processes share {} {}", processes, cards, cards == 1 ? "card" : "cards")};
  if (processes == 1) return {DeviceTransport::kNccl, "the process has a card of its own"};
  return {DeviceTransport::kNccl, fmt::format("each of the {} processes has a card of its own", processes)};
}

}  // namespace trident
