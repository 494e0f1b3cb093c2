#include "parallel/cuda/device_communicators.h"

#include <set>

#include "core/check.h"
#include "parallel/cuda/device_thread_communicator.h"
#include "parallel/cuda/nccl_communicator.h"

namespace trident {

TransportChoice choose_transport(const TransportFacts& facts) {
  const std::size_t ranks = facts.cards.size(), cards = std::set<std::string>(facts.cards.begin(), facts.cards.end()).size();
  if (facts.ranks == TransportFacts::Ranks::kThreads)
    return {DeviceTransport::kThread, fmt::format("the {} ranks are threads of this process", ranks)};
  if (cards < ranks)
    return {DeviceTransport::kHostStaged, fmt::format("{} processes share {} {}", ranks, cards, cards == 1 ? "card" : "cards")};
  if (!facts.nccl) return {DeviceTransport::kHostStaged, "NCCL is not here"};
  return {DeviceTransport::kNccl, fmt::format("each of the {} processes has a card of its own", ranks)};
}

std::unique_ptr<Communicator> make_device_communicator(DeviceTransport transport, std::unique_ptr<Communicator> host,
                                                       const DevicePlace& place, const DeviceCommunicatorOptions& options) {
  switch (transport) {
    case DeviceTransport::kThread: return std::make_unique<DeviceThreadCommunicator>(std::move(host), place);
    case DeviceTransport::kHostStaged: return std::make_unique<HostStagedCommunicator>(std::move(host), place, options.staged);
    case DeviceTransport::kNccl: return std::make_unique<NcclCommunicator>(std::move(host), place, options.nccl);
  }
  throw InternalError("a device transport that does not exist");
}

}  // namespace trident
