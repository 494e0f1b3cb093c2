// The communicator of ranks that share no memory: messages over a Wire. Algorithms: wire_collective.h.
//
// Bytes that a rank of n sends for a buffer of B: all_reduce 2 (n-1)/n B (small ones (n-1) B), reduce_scatter, all_gather and
// all_to_all (n-1)/n B, broadcast (n-1) B in all; and headers. Collectives of one communicator run one after another, whatever
// streams they are on. Nothing allocates after construction; summands are staged in a bounded buffer that is touched when first
// used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor_view.h"
#include "parallel/communicator/host_communicator.h"
#include "parallel/transport/wire_collective.h"
#include "parallel/transport/wire_group.h"

namespace trident {

// One side of a message between two ranks, a state machine that a stream polls.
class WireMessage final : public CommunicatorOperation {
 public:
  explicit WireMessage(WireGroup& group) : group_(&group) {}

  void prepare(const CollectiveCall& call);
  void issue() override;
  bool poll() override;
  std::string describe() const override;

 private:
  enum class Phase : std::uint8_t { kIssued, kHeader, kData };

  bool is_send() const { return fingerprint_.operation == CommOperation::kSend; }
  WireGroup::Turns& turns() const;
  bool advance();
  void check_agreement() const;

  WireGroup* group_;
  Phase phase_ = Phase::kIssued;
  std::uint64_t sequence_ = 0;
  int peer_ = -1;
  bool header_done_ = false, turn_passed_ = false;
  IssuedCall header_;  // of the sender
  Wire::Request header_request_ = 0;
  CommFingerprint fingerprint_;
  ConstTensorView data_;
  std::byte* target_ = nullptr;  // of a receive
  Transfer transfer_;
};

class MessageCommunicator final : public HostCommunicator {
 public:
  // This rank is number `rank` of `global_ranks`, among any two of which no other communicator uses `channel` or the
  // WireGroup::kChannels that begin with it.
  MessageCommunicator(std::shared_ptr<WireEndpoint> endpoint, std::string name, int rank, std::vector<int> global_ranks,
                      std::int32_t channel);
  ~MessageCommunicator() override;

  // Reaches the ranks of this node; who watches over the job tells the other nodes.
  void abort(std::string_view reason) override { group_.endpoint().node->fail(reason); }
  int global_rank_of(int rank) const override { return group_.global_rank_of(rank); }

 private:
  std::unique_ptr<Communicator> make_part(std::span<const int> members, int number, std::string name) override;
  void use_checks(CollectiveChecks checks) override { group_.checks = checks; }
  CommunicatorOperation& prepare(const CollectiveCall& call) override;

  WireGroup group_;
  OperationPool<WireCollective> collectives_;
  OperationPool<WireMessage> messages_;
};

}  // namespace trident
