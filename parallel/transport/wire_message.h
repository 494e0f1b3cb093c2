// A message of a group whose ranks share no memory, a state machine that a stream polls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/tensor_view.h"
#include "parallel/communicator/host_communicator.h"
#include "parallel/transport/wire_group.h"

namespace trident {

// One side of a message between two ranks.
class WireMessage final : public CommunicatorOperation {
 public:
  explicit WireMessage(WireGroup& group) : group_(&group) {}

  void prepare_send(ConstTensorView data, int peer);
  void prepare_recv(TensorView data, int peer);
  void issue() override;
  bool poll() override;
  std::string describe() const override;

 private:
  enum class Phase : std::uint8_t { kIssued, kHeader, kData };

  bool is_send() const { return fingerprint_.operation == CommOperation::kSend; }
  WireGroup::Turns& turns() const;
  void prepare(CommOperation operation, ConstTensorView data, int peer);
  bool advance();
  void check_agreement() const;

  WireGroup* group_;
  Phase phase_ = Phase::kIssued;
  std::uint64_t sequence_ = 0;
  int peer_ = -1;
  bool header_done_ = false, turn_passed_ = false;
  MessageHeader header_;  // of the sender
  Wire::Request header_request_ = 0;
  CommFingerprint fingerprint_;
  ConstTensorView data_;
  std::byte* target_ = nullptr;  // of a receive
  Transfer transfer_;
};

}  // namespace trident
