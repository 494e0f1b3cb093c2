#include "parallel/cuda_backend.h"

#include <fmt/core.h>

#include <set>

namespace trident {

std::string_view to_string(DeviceTransport transport) {
  switch (transport) {
    case DeviceTransport::kThread: return "between threads on the device";
    case DeviceTransport::kHostStaged: return "through pinned host memory";
    case DeviceTransport::kNccl: return "by NCCL";
  }
  return "?";
}

TransportChoice choose_transport(const TransportFacts& facts) {
  const std::size_t ranks = facts.cards.size(), cards = std::set<std::string>(facts.cards.begin(), facts.cards.end()).size();
  if (facts.ranks == TransportFacts::Ranks::kThreads)
    return {DeviceTransport::kThread, fmt::format("the {} ranks are threads of this process", ranks)};
  if (cards < ranks)
    return {DeviceTransport::kHostStaged, fmt::format("{} processes share {} {}", ranks, cards, cards == 1 ? "card" : "cards")};
  if (!facts.nccl) return {DeviceTransport::kHostStaged, "NCCL is not here"};
  return {DeviceTransport::kNccl, fmt::format("each of the {} processes has a card of its own", ranks)};
}

}  // namespace trident
