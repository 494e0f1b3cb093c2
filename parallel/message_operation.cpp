#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "core/tsan_announce.h"
#include "device/no_allocation.h"
#include "parallel/shared_operation.h"

namespace trident {

void MessageOperation::prepare(CommOperation operation, ConstTensorView data, int peer, std::uint64_t& next_sequence) {
  busy_ = true;
  posted_ = false;
  peer_ = peer;
  fingerprint_ = {operation, ReduceOp::kSum, data.dtype(), -1, data.num_elements()};
  data_ = data;
  next_sequence_ = &next_sequence;
}

void MessageOperation::prepare_send(ConstTensorView data, int peer, std::uint64_t& next_sequence) {
  prepare(CommOperation::kSend, data, peer, next_sequence);
}

void MessageOperation::prepare_recv(TensorView data, int peer, std::uint64_t& next_sequence) {
  prepare(CommOperation::kRecv, data, peer, next_sequence);
  target_ = data.data();
}

void MessageOperation::issue() { sequence_ = (*next_sequence_)++; }

ChannelSlot& MessageOperation::slot() const {
  return fingerprint_.operation == CommOperation::kSend ? group_->block.channel(group_->rank, peer_, sequence_)
                                                        : group_->block.channel(peer_, group_->rank, sequence_);
}

bool MessageOperation::poll() {
  group_->world->throw_if_failed(group_->seat());
  return fingerprint_.operation == CommOperation::kSend ? poll_send() : poll_recv();
}

bool MessageOperation::poll_send() {
  ChannelSlot& s = slot();
  const std::uint64_t acknowledged = s.acknowledged.load(std::memory_order_acquire);
  if (posted_) return acknowledged >= sequence_ + 1 && complete();  // the slot may have served a later message since the last look
  if (acknowledged != (sequence_ < kChannelSlots ? 0 : sequence_ + 1 - kChannelSlots)) return false;
  announce_read(data_);
  s.fingerprint = fingerprint_;
  s.operand = group_->world->memory().post(data_.data(), data_.num_bytes());
  s.posted.store(sequence_ + 1);
  posted_ = true;
  if (s.receiver_waits.exchange(0) != 0) group_->ring(peer_);  // else it will look by itself
  return false;
}

bool MessageOperation::poll_recv() {
  ChannelSlot& s = slot();
  if (s.posted.load(std::memory_order_acquire) != sequence_ + 1) {
    s.receiver_waits.store(1);
    if (s.posted.load() != sequence_ + 1) return false;
  }
  check_agreement(s);
  {
    const SharedWorld::Touching touching(*group_->world, group_->seat());
    if (!data_.empty()) std::memcpy(target_, group_->world->memory().reach(s.operand), static_cast<std::size_t>(data_.num_bytes()));
  }
  s.acknowledged.store(sequence_ + 1, std::memory_order_release);
  group_->ring(peer_);
  return complete();
}

void MessageOperation::check_agreement(const ChannelSlot& s) const {
  if (s.fingerprint.dtype == fingerprint_.dtype && s.fingerprint.count == fingerprint_.count) [[likely]]
    return;
  const AllocationExemption message;
  const int me = group_->world_rank(), peer = group_->world_rank_of(peer_);
  group_->world->raise(
      group_->seat(),
      fmt::format("{}: rank {} called {} from rank {} as message {} while rank {} called {} to rank {}", group_->name, me,
                  to_string(fingerprint_), peer, sequence_ + 1, peer, to_string(s.fingerprint), me));
}

std::string MessageOperation::describe() const {
  const int peer = group_->world_rank_of(peer_);
  if (fingerprint_.operation == CommOperation::kSend)
    return fmt::format("send #{} to rank {} over {}: rank {} has not received {}", sequence_ + 1, peer, group_->name, peer,
                       posted_ ? "it" : "earlier messages");
  return fmt::format("recv #{} from rank {} over {}: rank {} has not sent", sequence_ + 1, peer, group_->name, peer);
}

}  // namespace trident
