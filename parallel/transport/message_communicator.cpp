#include "parallel/transport/message_communicator.h"

#include <cstdint>
#include <utility>

namespace trident {

MessageCommunicator::MessageCommunicator(std::shared_ptr<WireEndpoint> endpoint, std::string name, int rank,
                                         std::vector<int> global_ranks, std::int32_t channel)
    : HostCommunicator(name, rank, static_cast<int>(global_ranks.size()), *endpoint->progress),
      group_(std::move(endpoint), std::move(name), rank, std::move(global_ranks), channel),
      collectives_(kOperations),
      messages_(kOperations) {}

MessageCommunicator::~MessageCommunicator() {
  group_cancel();
  std::string pending = collectives_.describe_pending();
  if (pending.empty()) pending = messages_.describe_pending();
  if (pending.empty()) return;
  group_.endpoint().node->fail(fmt::format("rank {} left with operations pending: {}", group_.global_rank(), pending));
  if (group_.endpoint().wire != nullptr)
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
  WireEndpoint& endpoint = group_.endpoint();
  const std::int32_t channel = endpoint.take_channels(largest_now(endpoint.next_channel));
  std::vector<int> global_ranks;
  for (const int r : members) global_ranks.push_back(group_.global_rank_of(r));
  return std::make_unique<MessageCommunicator>(group_.shared_endpoint(), std::move(name), number, std::move(global_ranks), channel);
}

}  // namespace trident
