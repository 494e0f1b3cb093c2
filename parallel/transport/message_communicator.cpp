#include "parallel/transport/message_communicator.h"

#include <cstdint>
#include <utility>

namespace trident {

MessageCommunicator::MessageCommunicator(std::shared_ptr<WireEnd> end, std::string name, int rank, std::vector<int> world_ranks,
                                         std::int32_t channel)
    : HostCommunicator(name, rank, static_cast<int>(world_ranks.size()), *end->progress),
      group_(std::move(end), std::move(name), rank, std::move(world_ranks), channel),
      collectives_(kOperations),
      messages_(kOperations) {}

MessageCommunicator::~MessageCommunicator() {
  group_cancel();
  std::string pending = collectives_.describe_pending();
  if (pending.empty()) pending = messages_.describe_pending();
  if (pending.empty()) return;
  group_.end().node->fail(fmt::format("rank {} left with operations pending: {}", group_.world_rank(), pending));
  if (group_.end().wire != nullptr)
    group_.wire().abandon();  // there is none where all ranks share a node, and this is a group of one
}

CommunicatorOperation& MessageCommunicator::prepare(const CollectiveCall& call) {
  WireCollective& operation = collectives_.take(progress(), [&] { return WireCollective(group_); });
  operation.prepare(call);
  return operation;
}

CommunicatorOperation& MessageCommunicator::prepare_send(ConstTensorView data, int peer) {
  WireMessage& message = messages_.take(progress(), [&] { return WireMessage(group_); });
  message.prepare_send(data, peer);
  return message;
}

CommunicatorOperation& MessageCommunicator::prepare_recv(TensorView data, int peer) {
  WireMessage& message = messages_.take(progress(), [&] { return WireMessage(group_); });
  message.prepare_recv(data, peer);
  return message;
}

std::unique_ptr<Communicator> MessageCommunicator::make_part(std::span<const int> members, int number, std::string name) {
  WireEnd& end = group_.end();
  const std::int32_t channel = end.take_channels(largest_now(end.next_channel));
  std::vector<int> world_ranks;
  for (const int r : members) world_ranks.push_back(group_.world_rank_of(r));
  return std::make_unique<MessageCommunicator>(group_.shared_end(), std::move(name), number, std::move(world_ranks), channel);
}

}  // namespace trident
