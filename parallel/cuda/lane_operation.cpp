#include "parallel/cuda/lane_operation.h"

#include "core/at.h"
#include "device/no_allocation.h"

namespace trident {

void LaneOperation::prepare(const CollectiveCall& call, Lane& lane) {
  busy_ = true;
  phase_ = Phase::kPrepared;
  call_ = call;
  lane_ = &lane;
}

void LaneOperation::issue() {
  ticket_ = lane_->draw();
  phase_ = Phase::kIssued;
}

bool LaneOperation::poll() {
  if (phase_ == Phase::kIssued) {
    if (!lane_->is_turn_of(ticket_)) return false;
    tell();
    phase_ = Phase::kAgreeing;
  }
  lane_->stream().poll();  // not to wait for the next round
  if (phase_ == Phase::kAgreeing) {
    if (!told_.done()) return false;
    compare();
    start();
    phase_ = Phase::kMoving;
  }
  if (!advance()) return false;
  lane_->end_turn();
  group_->progress->note_advance();  // whoever has the next turn may be on a stream that was polled before
  return complete();
}

void LaneOperation::tell() {
  const CallRecord mine{fingerprint_of(call_, group_->global_ranks), reinterpret_cast<std::uintptr_t>(call_.in.data())};
  const auto words = mine.words();
  CpuStream& stream = lane_->stream();
  const TensorView first = lane_->all().range(0, kRecordWords);  // of a message
  told_ = Event();
  if (call_.operation == CommOperation::kRecv) {
    group_->host->recv(stream, first, call_.root);
  } else if (call_.operation == CommOperation::kSend) {
    std::copy(words.begin(), words.end(), lane_->mine().as<std::int64_t>());
    group_->host->send(stream, lane_->mine(), call_.root);
  } else if (records_ == Records::kAlways || group_->checks == CollectiveChecks::kOn ||
             call_.operation == CommOperation::kBarrier) {
    std::copy(words.begin(), words.end(), lane_->mine().as<std::int64_t>());
    group_->host->all_gather(stream, lane_->all(), lane_->mine());
  }
  told_ = stream.record();
}

CallRecord LaneOperation::told_by(int rank) const {
  return record_of_words(lane_->all().range(rank * kRecordWords, kRecordWords).span<std::int64_t>());
}

std::byte* LaneOperation::operand_of(int rank) const {
  return reinterpret_cast<std::byte*>(told_by(is_message() ? 0 : rank).operand);
}

void LaneOperation::compare() const {
  std::optional<std::string> differs;
  const AllocationExemption message;
  const auto number = ticket_ + 1;
  if (call_.operation == CommOperation::kRecv) {
    const IssuedCall receiver{fingerprint_of(call_, group_->global_ranks), number, at(group_->global_ranks, group_->rank)};
    const IssuedCall sender{told_by(0).fingerprint, number, at(group_->global_ranks, call_.root)};
    if (!is_one_message(sender.fingerprint, receiver.fingerprint)) differs = message_disagreement(group_->name(), receiver, sender);
  } else if (!is_message() && group_->checks == CollectiveChecks::kOn) {
    differs = first_disagreement(group_->name(), number, group_->global_ranks, lane_->all().span<std::int64_t>());
  }
  if (!differs) return;
  group_->host->abort(*differs);
  throw CommunicationError(*differs);
}

std::string LaneOperation::describe() const {
  const std::string what = describe_call(call_, ticket_ + 1, group_->global_ranks, group_->name()) + " on the device: ";
  switch (phase_) {
    case Phase::kPrepared: return what + "not issued";
    case Phase::kIssued: return what + "not started, earlier operations are under way";
    case Phase::kAgreeing: return what + lane_->stream().describe_head();
    case Phase::kMoving: return what + describe_move();
  }
  return what;
}

}  // namespace trident
