// The communicator of ranks that can read each other's memory. Algorithms: shared_world.h, collective_operation.cpp.
//
// Operands up to kInlineBytes travel inside the control block with one synchronisation; larger ones are reduced and copied in
// place, directly between the ranks' buffers, with two, or where some lie out of peers' reach through the control block, with one
// for every kPieceBytes. At most kSlots collectives of a communicator and kChannelSlots messages of an ordered pair are in flight,
// and 256 of either kind may be queued; later ones wait for them. Nothing allocates after construction.
//
// A rank that fails or leaves with operations pending makes every peer fail, and goes on only when no peer is inside its memory.
// Buffers given to queue streams must therefore outlive the communicator, or be awaited before they are freed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/communicator/host_communicator.h"
#include "parallel/shared_memory/collective_operation.h"
#include "parallel/shared_memory/message_operation.h"

namespace trident {

class SharedMemoryCommunicator final : public HostCommunicator {
 public:
  // `block` is the control block of the group whose ranks have the numbers `local_ranks` in `world`; this one is number `rank`.
  // `global_ranks`: theirs, where the world has other nodes. Streams passed to operations are CpuStreams polled by `progress`.
  SharedMemoryCommunicator(SharedWorld& world, GroupBlock block, std::string name, int rank, std::vector<int> local_ranks,
                           Progress& progress, std::vector<int> global_ranks = {});
  ~SharedMemoryCommunicator() override;

  void abort(std::string_view reason) override { group_.world->fail(reason); }
  int global_rank_of(int rank) const override { return group_.global_rank_of(rank); }

 private:
  std::unique_ptr<Communicator> make_part(std::span<const int> members, int number, std::string name) override;
  void use_checks(CollectiveChecks checks) override { group_.checks = checks; }
  CommunicatorOperation& prepare(const CollectiveCall& call) override;

  SharedGroup group_;
  std::uint64_t next_collective_ = 0;
  std::vector<std::uint64_t> next_send_, next_recv_;  // by peer
  OperationPool<CollectiveOperation> collectives_;
  OperationPool<MessageOperation> messages_;
};

// Fruitless waits by `progress` end when `world` fails (PeerFailure) or its time-out has passed (CommunicationError). For the rank
// that has number `local_rank` in `world` and is rank `rank` in messages.
void limit_waits(Progress& progress, SharedWorld& world, int local_rank, int rank);

// The communicator of all ranks of `world`, for one of them, which waits by `progress`; limits its waits.
std::unique_ptr<Communicator> make_world_communicator(SharedWorld& world, int rank, Progress& progress);

}  // namespace trident
