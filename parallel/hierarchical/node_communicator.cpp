#include "parallel/hierarchical/node_communicator.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>

#include "core/at.h"
#include "core/check.h"
#include "parallel/hierarchical/node_collective.h"
#include "parallel/shared_memory/message_operation.h"
#include "parallel/shared_memory/shared_memory_communicator.h"
#include "parallel/transport/message_communicator.h"

namespace trident {

namespace {

// A few microseconds are less than a wake-up costs; a millisecond is less than anybody notices, and with 32 ranks on two cores
// costs them a few per cent.
constexpr Progress::Backoff kNaps = {20e-6, 1e-3, 10e-3};

// The communicator of a group that has several ranks on some of its several nodes.
class NodeCommunicator final : public HostCommunicator {
 public:
  NodeCommunicator(std::shared_ptr<WireEndpoint> endpoint, std::string name, int rank, const std::vector<int>& global_ranks,
                   std::int32_t channel, GroupBlock block)
      : HostCommunicator(name, rank, static_cast<int>(global_ranks.size()), *endpoint->progress),
        endpoint_(endpoint),
        group_(std::move(endpoint), name, rank, global_ranks, channel, block),
        next_send_(group_.local.local_ranks.size()),
        next_recv_(group_.local.local_ranks.size()),
        collectives_(kOperations),
        local_messages_(kOperations),
        wire_messages_(kOperations) {}
  ~NodeCommunicator() override;

  void abort(std::string_view reason) override { endpoint_->node->fail(reason); }
  int global_rank_of(int rank) const override { return group_.across.global_rank_of(rank); }

 private:
  std::unique_ptr<Communicator> make_part(std::span<const int> members, int number, std::string name) override;
  void use_checks(CollectiveChecks checks) override {
    group_.local.checks = group_.across.checks = checks;
    if (group_.rail) group_.rail->checks = checks;
  }
  CommunicatorOperation& prepare(const CollectiveCall& call) override;
  CommunicatorOperation& prepare_message(const CollectiveCall& call);
  // The number of `peer` among the members of this node, or -1.
  int local_index(int peer) const;

  std::shared_ptr<WireEndpoint> endpoint_;
  NodeGroup group_;
  std::vector<std::uint64_t> next_send_, next_recv_;  // by member of this node
  OperationPool<NodeCollective> collectives_;
  OperationPool<MessageOperation> local_messages_;
  OperationPool<WireMessage> wire_messages_;
};

// The communicator that fits. `block`: of the ranks on this node if they are several.
std::unique_ptr<Communicator> make_group(const std::shared_ptr<WireEndpoint>& endpoint, std::string name, int rank,
                                         std::vector<int> global_ranks, std::int32_t channel, GroupBlock block) {
  std::set<int> nodes;
  std::vector<int> local_ranks;  // on this node
  for (const int r : global_ranks) {
    const int node = at(endpoint->nodes, r);
    nodes.insert(node);
    if (node == at(endpoint->nodes, at(global_ranks, rank)))
      local_ranks.push_back(local_rank_of(endpoint->nodes, r));
  }
  if (nodes.size() == 1 && global_ranks.size() > 1)
    return std::make_unique<SharedMemoryCommunicator>(*endpoint->node, block, std::move(name), rank, std::move(local_ranks),
                                                      *endpoint->progress, std::move(global_ranks));
  if (nodes.size() == global_ranks.size())
    return std::make_unique<MessageCommunicator>(endpoint, std::move(name), rank, std::move(global_ranks), channel);
  return std::make_unique<NodeCommunicator>(endpoint, std::move(name), rank, global_ranks, channel, block);
}

NodeCommunicator::~NodeCommunicator() {
  group_cancel();
  std::string pending = collectives_.describe_pending();
  if (pending.empty()) pending = local_messages_.describe_pending();
  if (pending.empty()) pending = wire_messages_.describe_pending();
  if (pending.empty()) return;
  endpoint_->node->fail(fmt::format("rank {} left with operations pending: {}", group_.across.global_rank(), pending));
  endpoint_->wire->abandon();
  endpoint_->node->wait_until_untouched(endpoint_->local_rank);
}

CommunicatorOperation& NodeCommunicator::prepare(const CollectiveCall& call) {
  if (call.is_message()) return prepare_message(call);
  NodeCollective& operation = collectives_.take(progress(), [&] { return NodeCollective(group_); });
  operation.prepare(call);
  return operation;
}

int NodeCommunicator::local_index(int peer) const {
  const std::vector<int>& mine = group_.on_my_node();
  const auto found = std::find(mine.begin(), mine.end(), peer);
  return found == mine.end() ? -1 : static_cast<int>(found - mine.begin());
}

CommunicatorOperation& NodeCommunicator::prepare_message(const CollectiveCall& call) {
  if (const int index = local_index(call.root); index >= 0) {
    MessageOperation& message = local_messages_.take(progress(), [&] { return MessageOperation(group_.local); });
    message.prepare(call, index, at(call.operation == CommOperation::kSend ? next_send_ : next_recv_, index));
    return message;
  }
  WireMessage& message = wire_messages_.take(progress(), [&] { return WireMessage(group_.across); });
  message.prepare(call);
  return message;
}

std::unique_ptr<Communicator> NodeCommunicator::make_part(std::span<const int> members, int number, std::string name) {
  const std::int32_t channel = endpoint_->take_channels(largest_now(endpoint_->next_channel));
  std::vector<int> global_ranks, here;  // here: members of this node, by their number among its ranks of this group
  for (const int r : members) {
    global_ranks.push_back(group_.across.global_rank_of(r));
    if (const int index = local_index(r); index >= 0) here.push_back(index);
  }
  return make_group(endpoint_, std::move(name), number, std::move(global_ranks), channel, group_.local.new_block(here));
}

}  // namespace

std::unique_ptr<Communicator> make_node_world(int rank, WireEndpoint endpoint) {
  SharedWorld& node = *endpoint.node;
  const auto local_size = std::ranges::count(endpoint.nodes, at(endpoint.nodes, rank));
  const bool one_node = local_size == std::ssize(endpoint.nodes);
  TRIDENT_CHECK(local_size == node.size(), "{} ranks on a node of {}", local_size, node.size());
  TRIDENT_CHECK(one_node || endpoint.wire != nullptr, "several nodes without a wire between them");
  endpoint.local_rank = local_rank_of(endpoint.nodes, rank);
  endpoint.next_channel = WireGroup::kChannels;
  limit_waits(*endpoint.progress, node, endpoint.local_rank, rank);
  if (!one_node) endpoint.progress->set_naps(kNaps, [wire = endpoint.wire] { wire->poll(); });
  std::vector<int> everybody(endpoint.nodes.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  return make_group(std::make_shared<WireEndpoint>(std::move(endpoint)), "world", rank, std::move(everybody), 0,
                    node.group(node.world_group(), node.size()));
}

}  // namespace trident
