#include "parallel/shared_memory/message_operation.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/at.h"
#include "core/int_math.h"
#include "core/tsan_announce.h"
#include "device/no_allocation.h"

namespace trident {

void MessageOperation::prepare(const CollectiveCall& call, int peer, std::uint64_t& next_sequence) {
  busy_ = true;
  posted_ = false;
  piece_ = 0;
  peer_ = peer;
  fingerprint_ = fingerprint_of(call, group_->global_ranks);
  data_ = call.in;
  target_ = call.out.data();
  next_sequence_ = &next_sequence;
}

void MessageOperation::issue() { sequence_ = (*next_sequence_)++; }

ChannelSlot& MessageOperation::slot() const {
  return fingerprint_.operation == CommOperation::kSend ? group_->block.channel(group_->rank, peer_, sequence_)
                                                        : group_->block.channel(peer_, group_->rank, sequence_);
}

bool MessageOperation::poll() {
  group_->world->throw_if_failed(group_->local_rank());
  return fingerprint_.operation == CommOperation::kSend ? poll_send() : poll_recv();
}

bool MessageOperation::poll_send() {
  ChannelSlot& s = slot();
  const std::uint64_t acknowledged = s.acknowledged.load(std::memory_order_acquire);
  if (posted_ && acknowledged >= sequence_ + 1) return complete();  // the slot may have served a later message since the last look
  if (!posted_) {
    if (acknowledged != (sequence_ < kChannelSlots ? 0 : sequence_ + 1 - kChannelSlots)) return false;
    post();
  }
  if (s.operand == kUnreachable && fill_stage()) group_->ring(peer_);
  return false;
}

void MessageOperation::post() {
  ChannelSlot& s = slot();
  const PeerMemory& memory = group_->world->memory();
  announce_read(data_);
  s.fingerprint = fingerprint_;
  s.operand = data_.empty() ? 0 : kUnreachable;
  if (s.operand != 0 && memory.reaches(data_.data(), data_.num_bytes())) s.operand = group_->world->memory().post(data_.data());
  if (s.operand == kUnreachable) {
    std::uint64_t& stage = at(group_->stages, peer_);
    if (stage == 0) stage = group_->world->allocate_stage();
    s.stage = stage;
  }
  s.filled.store(0, std::memory_order_relaxed);
  s.taken.store(0, std::memory_order_relaxed);
  s.posted.store(sequence_ + 1);
  posted_ = true;
  if (s.receiver_waits.exchange(0) != 0) group_->ring(peer_);  // else it will look by itself
}

std::uint64_t MessageOperation::num_pieces() const { return static_cast<std::uint64_t>(ceil_div(data_.num_bytes(), kPieceBytes)); }

// Puts in place what there is room for; true if that was anything. The pair's stage serves one message after another. It is not
// enough to look at the message just before: that may have gone without the stage, and ahead of one that is still in it. Those
// before the ones looked at are over, or this message would have no slot.
bool MessageOperation::fill_stage() {
  ChannelSlot& s = slot();
  for (std::uint64_t k = sequence_ - std::min<std::uint64_t>(sequence_, kChannelSlots - 1); k < sequence_; ++k)
    if (group_->block.channel(group_->rank, peer_, k).acknowledged.load(std::memory_order_acquire) < k + 1) return false;
  const std::uint64_t before = piece_;
  while (piece_ < num_pieces() && piece_ < s.taken.load(std::memory_order_acquire) + 2) {
    const std::int64_t begin = static_cast<std::int64_t>(piece_) * kPieceBytes;
    std::memcpy(group_->world->stage(s.stage) + piece_ % 2 * kPieceBytes, data_.data() + begin,
                static_cast<std::size_t>(std::min(kPieceBytes, data_.num_bytes() - begin)));
    s.filled.store(++piece_, std::memory_order_release);
  }
  if (piece_ != before) group_->progress->note_advance();
  return piece_ != before;
}

// True once the last piece was taken.
bool MessageOperation::empty_stage() {
  ChannelSlot& s = slot();
  const std::uint64_t before = piece_;
  while (piece_ < s.filled.load(std::memory_order_acquire)) {
    const std::int64_t begin = static_cast<std::int64_t>(piece_) * kPieceBytes;
    std::memcpy(target_ + begin, group_->world->stage(s.stage) + piece_ % 2 * kPieceBytes,
                static_cast<std::size_t>(std::min(kPieceBytes, data_.num_bytes() - begin)));
    s.taken.store(++piece_, std::memory_order_release);
  }
  if (piece_ != before) {
    group_->progress->note_advance();
    group_->ring(peer_);
  }
  return piece_ == num_pieces();
}

bool MessageOperation::poll_recv() {
  ChannelSlot& s = slot();
  if (s.posted.load(std::memory_order_acquire) != sequence_ + 1) {
    s.receiver_waits.store(1);
    if (s.posted.load() != sequence_ + 1) return false;
  }
  check_agreement(s);
  if (s.operand == kUnreachable) {
    if (!empty_stage()) return false;
  } else if (!data_.empty()) {
    const SharedWorld::Touching touching(*group_->world, group_->local_rank());
    std::memcpy(target_, group_->world->memory().reach(s.operand), static_cast<std::size_t>(data_.num_bytes()));
  }
  s.acknowledged.store(sequence_ + 1, std::memory_order_release);
  group_->ring(peer_);
  return complete();
}

void MessageOperation::check_agreement(const ChannelSlot& s) const {
  if (is_one_message(s.fingerprint, fingerprint_)) [[likely]]
    return;
  const AllocationExemption message;
  group_->world->raise(group_->local_rank(),
                       message_disagreement(group_->name, {fingerprint_, sequence_ + 1, group_->global_rank()},
                                            {s.fingerprint, sequence_ + 1, group_->global_rank_of(peer_)}));
}

std::string MessageOperation::describe() const {
  const int peer = group_->global_rank_of(peer_);
  if (fingerprint_.operation == CommOperation::kSend)
    return fmt::format("send #{} to rank {} over {}: rank {} has not received {}", sequence_ + 1, peer, group_->name, peer,
                       posted_ ? "it" : "earlier messages");
  return fmt::format("recv #{} from rank {} over {}: rank {} has not sent", sequence_ + 1, peer, group_->name, peer);
}

}  // namespace trident
