// The messages of a SharedMemoryCommunicator, a state machine that a stream polls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/tensor_view.h"
#include "parallel/communicator/collective_kind.h"
#include "parallel/communicator/host_communicator.h"
#include "parallel/shared_memory/shared_group.h"

namespace trident {

// One side of a message between two ranks; the receiver copies straight from the sender's buffer.
class MessageOperation final : public CommunicatorOperation {
 public:
  // next_sequence: of the ordered pair, chosen in prepare().
  explicit MessageOperation(SharedGroup& group) : group_(&group) {}

  // `call`: a message; `peer`: within the group.
  void prepare(const CollectiveCall& call, int peer, std::uint64_t& next_sequence);
  void issue() override;
  bool poll() override;
  std::string describe() const override;

 private:
  bool poll_send();
  bool poll_recv();
  void post();
  bool fill_stage();
  bool empty_stage();
  std::uint64_t num_pieces() const;
  ChannelSlot& slot() const;
  void check_agreement(const ChannelSlot& slot) const;

  SharedGroup* group_;
  std::uint64_t* next_sequence_ = nullptr;
  std::uint64_t sequence_ = 0;
  bool posted_ = false;
  std::uint64_t piece_ = 0;  // of a message through a stage: how many are done here
  int peer_ = -1;
  CommFingerprint fingerprint_;
  ConstTensorView data_;
  std::byte* target_ = nullptr;  // of a receive
};

}  // namespace trident
