#include "parallel/transport/message_communicator.h"

#include <limits>
#include <utility>

#include "core/at.h"
#include "core/tsan_announce.h"
#include "device/no_allocation.h"

namespace trident {

void WireMessage::prepare(const CollectiveCall& call) {
  busy_ = true;
  phase_ = Phase::kIssued;
  header_done_ = turn_passed_ = false;
  peer_ = call.root;
  fingerprint_ = fingerprint_of(call, group_->global_ranks());
  data_ = call.in;
  target_ = call.out.data();
}

WireGroup::Turns& WireMessage::turns() const { return at(is_send() ? group_->sends : group_->recvs, peer_); }

void WireMessage::issue() { sequence_ = turns().next++; }

bool WireMessage::poll() {
  group_->throw_if_failed();
  if (phase_ == Phase::kIssued && turns().now != sequence_) return false;
  if (!group_->guarded([this] { return advance(); })) return false;
  group_->endpoint().progress->expect_messages(-1);
  return complete();
}

// The next message of the pair may go or come once all pieces of this one are in the wire's hands: it keeps their order.
bool WireMessage::advance() {
  WireEndpoint& endpoint = group_->endpoint();
  const int peer = group_->global_rank_of(peer_);
  const std::int32_t channel = group_->channel() + 1;
  const std::int64_t piece = endpoint.options.message_bytes;
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  if (phase_ == Phase::kIssued) {
    endpoint.progress->expect_messages(1);
    if (is_send()) {
      announce_read(data_);
      header_ = {fingerprint_, sequence_ + 1, group_->global_rank()};
      header_request_ = endpoint.wire->send(reinterpret_cast<const std::byte*>(&header_), sizeof header_, peer, channel);
      transfer_.begin(const_cast<std::byte*>(data_.data()), data_.num_bytes(), piece);  // only read
    } else {
      header_request_ = endpoint.wire->recv(reinterpret_cast<std::byte*>(&header_), sizeof header_, peer, channel);
    }
    phase_ = is_send() ? Phase::kData : Phase::kHeader;
  }
  if (!header_done_) header_done_ = endpoint.test(header_request_);
  if (phase_ == Phase::kHeader) {
    if (!header_done_) return false;
    check_agreement();
    transfer_.begin(target_, data_.num_bytes(), piece);
    phase_ = Phase::kData;
  }
  if (is_send()) transfer_.send(endpoint, peer, channel, kAll);
  else transfer_.recv(endpoint, peer, channel, kAll);
  if (!turn_passed_ && transfer_.all_posted()) {
    turn_passed_ = true;
    ++turns().now;
  }
  return header_done_ && transfer_.complete();
}

void WireMessage::check_agreement() const {
  if (is_one_message(header_.fingerprint, fingerprint_) && header_.number == sequence_ + 1) [[likely]]
    return;
  const AllocationExemption message;
  group_->raise(message_disagreement(group_->name(), {fingerprint_, sequence_ + 1, group_->global_rank()}, header_));
}

std::string WireMessage::describe() const {
  const int peer = group_->global_rank_of(peer_);
  if (is_send())
    return fmt::format("send #{} to rank {} over {}: rank {} has not received {}", sequence_ + 1, peer, group_->name(), peer,
                       phase_ == Phase::kIssued ? "earlier messages" : "it");
  return fmt::format("recv #{} from rank {} over {}: rank {} has not sent", sequence_ + 1, peer, group_->name(), peer);
}

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
  if (call.is_message()) {
    WireMessage& message = messages_.take(progress(), [&] { return WireMessage(group_); });
    message.prepare(call);
    return message;
  }
  WireCollective& operation = collectives_.take(progress(), [&] { return WireCollective(group_); });
  operation.prepare(call);
  return operation;
}

std::unique_ptr<Communicator> MessageCommunicator::make_part(std::span<const int> members, int number, std::string name) {
  WireEndpoint& endpoint = group_.endpoint();
  const std::int32_t channel = endpoint.take_channels(largest_now(endpoint.next_channel));
  std::vector<int> global_ranks;
  for (const int r : members) global_ranks.push_back(group_.global_rank_of(r));
  return std::make_unique<MessageCommunicator>(group_.shared_endpoint(), std::move(name), number, std::move(global_ranks), channel);
}

}  // namespace trident
