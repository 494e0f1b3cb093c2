#include "parallel/node_communicator.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "parallel/message_communicator.h"
#include "parallel/shared_memory_communicator.h"

namespace trident {

namespace {

// A few microseconds are less than a wake-up costs; a millisecond is less than anybody notices, and with 32 ranks on two cores costs
// them a few per cent.
constexpr Progress::Naps kNaps = {20e-6, 1e-3, 10e-3};

}  // namespace

std::unique_ptr<Communicator> make_node_world(const NodePlace& place, Progress& progress, const MessageOptions& options) {
  SharedWorld& node = *place.node;
  std::vector<int> all, local;  // world ranks
  for (int r = 0; r < static_cast<int>(place.nodes.size()); ++r) {
    all.push_back(r);
    if (place.nodes[static_cast<std::size_t>(r)] == place.nodes[static_cast<std::size_t>(place.rank)]) local.push_back(r);
  }
  const int seat = static_cast<int>(std::find(local.begin(), local.end(), place.rank) - local.begin());
  TRIDENT_CHECK(static_cast<int>(local.size()) == node.size(), "{} ranks on a node of {}", local.size(), node.size());
  progress.set_idle_hook([&node, seat, rank = place.rank](double seconds, FunctionRef<std::string()> describe) {
    node.throw_if_failed(seat);
    if (seconds >= node.timeout_seconds()) node.raise(seat, fmt::format("rank {} waited {:.3g} s in {}", rank, seconds, describe()));
  });
  progress.set_naps(kNaps);
  auto end = std::make_shared<WireEnd>(WireEnd{place.wire, &node, seat, &progress, options, WireGroup::kChannels});
  return std::make_unique<MessageCommunicator>(std::move(end), "world", place.rank, std::move(all), 0);
}

}  // namespace trident
