#include "parallel/hierarchical/node_communicator.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>

#include "core/check.h"
#include "parallel/hierarchical/node_operation.h"
#include "parallel/shared_memory/shared_memory_communicator.h"
#include "parallel/transport/message_communicator.h"

namespace trident {

namespace {

// A few microseconds are less than a wake-up costs; a millisecond is less than anybody notices, and with 32 ranks on two cores
// costs them a few per cent.
constexpr Progress::Naps kNaps = {20e-6, 1e-3, 10e-3};

// The communicator of a group that has several ranks on some of its several nodes.
class NodeCommunicator final : public HostCommunicator {
 public:
  NodeCommunicator(std::shared_ptr<WireEnd> end, std::string name, int rank, const std::vector<int>& world_ranks,
                   std::int32_t channel, GroupBlock block)
      : HostCommunicator(name, rank, static_cast<int>(world_ranks.size()), *end->progress),
        end_(end),
        group_(std::move(end), name, rank, world_ranks, channel, block),
        next_send_(group_.local.seats.size()),
        next_recv_(group_.local.seats.size()),
        collectives_(kOperations),
        local_messages_(kOperations),
        wire_messages_(kOperations) {}
  ~NodeCommunicator() override;

  void abort(std::string_view reason) override { end_->node->fail(reason); }
  int world_rank_of(int rank) const override { return group_.across.world_rank_of(rank); }

 private:
  std::unique_ptr<Communicator> make_part(std::span<const int> members, int number, std::string name) override;
  void use_checks(CollectiveChecks checks) override {
    group_.local.checks = group_.across.checks = checks;
    if (group_.rail) group_.rail->checks = checks;
  }
  CommunicatorOperation& prepare(const CollectiveCall& call) override;
  CommunicatorOperation& prepare_send(ConstTensorView data, int peer) override;
  CommunicatorOperation& prepare_recv(TensorView data, int peer) override;
  MessageOperation& take_local() {
    return local_messages_.take(progress(), [&] { return MessageOperation(group_.local); });
  }
  WireMessage& take_wire() {
    return wire_messages_.take(progress(), [&] { return WireMessage(group_.across); });
  }
  // The number of `peer` among the members of this node, or -1.
  int local_index(int peer) const;

  std::shared_ptr<WireEnd> end_;
  NodeGroup group_;
  std::vector<std::uint64_t> next_send_, next_recv_;  // by member of this node
  OperationPool<NodeCollective> collectives_;
  OperationPool<MessageOperation> local_messages_;
  OperationPool<WireMessage> wire_messages_;
};

// The communicator that fits. `block`: of the ranks on this node if they are several.
std::unique_ptr<Communicator> make_group(const std::shared_ptr<WireEnd>& end, std::string name, int rank,
                                         std::vector<int> world_ranks, std::int32_t channel, GroupBlock block) {
  std::set<int> nodes;
  std::vector<int> seats;  // on this node
  for (const int r : world_ranks) {
    const int node = end->nodes[static_cast<std::size_t>(r)];
    nodes.insert(node);
    if (node == end->nodes[static_cast<std::size_t>(world_ranks[static_cast<std::size_t>(rank)])])
      seats.push_back(seat_of(end->nodes, r));
  }
  if (nodes.size() == 1 && world_ranks.size() > 1)
    return std::make_unique<SharedMemoryCommunicator>(*end->node, block, std::move(name), rank, std::move(seats), *end->progress,
                                                      std::move(world_ranks));
  if (nodes.size() == world_ranks.size())
    return std::make_unique<MessageCommunicator>(end, std::move(name), rank, std::move(world_ranks), channel);
  return std::make_unique<NodeCommunicator>(end, std::move(name), rank, world_ranks, channel, block);
}

NodeCommunicator::~NodeCommunicator() {
  group_cancel();
  std::string pending = collectives_.describe_pending();
  if (pending.empty()) pending = local_messages_.describe_pending();
  if (pending.empty()) pending = wire_messages_.describe_pending();
  if (pending.empty()) return;
  end_->node->fail(fmt::format("rank {} left with operations pending: {}", group_.across.world_rank(), pending));
  end_->wire->abandon();
  end_->node->wait_until_untouched(end_->seat);
}

CommunicatorOperation& NodeCommunicator::prepare(const CollectiveCall& call) {
  NodeCollective& operation = collectives_.take(progress(), [&] { return NodeCollective(group_); });
  operation.prepare(call);
  return operation;
}

int NodeCommunicator::local_index(int peer) const {
  const std::vector<int>& mine = group_.on_my_node();
  const auto found = std::find(mine.begin(), mine.end(), peer);
  return found == mine.end() ? -1 : static_cast<int>(found - mine.begin());
}

CommunicatorOperation& NodeCommunicator::prepare_send(ConstTensorView data, int peer) {
  if (const int index = local_index(peer); index >= 0) {
    MessageOperation& message = take_local();
    message.prepare_send(data, index, next_send_[static_cast<std::size_t>(index)]);
    return message;
  }
  WireMessage& message = take_wire();
  message.prepare_send(data, peer);
  return message;
}

CommunicatorOperation& NodeCommunicator::prepare_recv(TensorView data, int peer) {
  if (const int index = local_index(peer); index >= 0) {
    MessageOperation& message = take_local();
    message.prepare_recv(data, index, next_recv_[static_cast<std::size_t>(index)]);
    return message;
  }
  WireMessage& message = take_wire();
  message.prepare_recv(data, peer);
  return message;
}

std::unique_ptr<Communicator> NodeCommunicator::make_part(std::span<const int> members, int number, std::string name) {
  const std::int32_t channel = end_->take_channels(largest_now(end_->next_channel));
  std::vector<int> world_ranks, here;  // here: members of this node, by their number among its ranks of this group
  for (const int r : members) {
    world_ranks.push_back(group_.across.world_rank_of(r));
    if (const int index = local_index(r); index >= 0) here.push_back(index);
  }
  return make_group(end_, std::move(name), number, std::move(world_ranks), channel, group_.local.new_block(here));
}

}  // namespace

std::unique_ptr<Communicator> make_node_world(const NodePlace& place, Progress& progress, const MessageOptions& options) {
  SharedWorld& node = *place.node;
  const int my_node = place.nodes[static_cast<std::size_t>(place.rank)], seat = seat_of(place.nodes, place.rank);
  const auto local_size = std::count(place.nodes.begin(), place.nodes.end(), my_node);
  const bool one_node = local_size == static_cast<std::ptrdiff_t>(place.nodes.size());
  TRIDENT_CHECK(local_size == node.size(), "{} ranks on a node of {}", local_size, node.size());
  TRIDENT_CHECK(one_node || place.wire != nullptr, "several nodes without a wire between them");
  limit_waits(progress, node, seat, place.rank);
  if (!one_node) progress.set_naps(kNaps, [wire = place.wire] { wire->poll(); });
  const auto end = std::make_shared<WireEnd>(
      WireEnd{place.wire, &node, seat, &progress, options, WireGroup::kChannels, place.nodes, place.allocate});
  std::vector<int> everybody(place.nodes.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  return make_group(end, "world", place.rank, std::move(everybody), 0, node.group(node.world_group(), node.size()));
}

}  // namespace trident
