#include "parallel/shared_memory/shared_memory_communicator.h"

#include <numeric>
#include <utility>

#include "core/at.h"

namespace trident {

SharedMemoryCommunicator::SharedMemoryCommunicator(SharedWorld& world, GroupBlock block, std::string name, int rank,
                                                   std::vector<int> local_ranks, Progress& progress, std::vector<int> global_ranks)
    : HostCommunicator(name, rank, static_cast<int>(local_ranks.size()), progress),
      group_(&world, &progress, block, std::move(name), rank, std::move(local_ranks), std::move(global_ranks)),
      next_send_(group_.local_ranks.size()),
      next_recv_(group_.local_ranks.size()),
      collectives_(kOperations),
      messages_(kOperations) {
}

SharedMemoryCommunicator::~SharedMemoryCommunicator() {
  group_cancel();
  std::string pending = collectives_.describe_pending();
  if (pending.empty()) pending = messages_.describe_pending();
  if (pending.empty()) return;
  group_.world->fail(fmt::format("rank {} left with operations pending: {}", group_.global_rank(), pending));
  group_.world->wait_until_untouched(group_.local_rank());
}

CommunicatorOperation& SharedMemoryCommunicator::prepare(const CollectiveCall& call) {
  if (call.is_message()) {
    MessageOperation& message = messages_.take(progress(), [&] { return MessageOperation(group_); });
    message.prepare(call, call.root, at(call.operation == CommOperation::kSend ? next_send_ : next_recv_, call.root));
    return message;
  }
  CollectiveOperation& operation = collectives_.take(progress(), [&] { return CollectiveOperation(group_, next_collective_); });
  operation.prepare(call);
  return operation;
}

std::unique_ptr<Communicator> SharedMemoryCommunicator::make_part(std::span<const int> members, int number, std::string name) {
  meet();  // as new_block() asks
  std::vector<int> local_ranks, global_ranks;
  for (const int r : members) {
    local_ranks.push_back(at(group_.local_ranks, r));
    global_ranks.push_back(group_.global_rank_of(r));
  }
  return std::make_unique<SharedMemoryCommunicator>(*group_.world, group_.new_block(members), std::move(name), number,
                                                    std::move(local_ranks), progress(), std::move(global_ranks));
}

void limit_waits(Progress& progress, SharedWorld& world, int local_rank, int rank) {
  progress.set_idle_hook([&world, local_rank, rank](double seconds, FunctionRef<std::string()> describe) {
    world.throw_if_failed(local_rank);
    if (seconds >= world.timeout_seconds())
      world.raise(local_rank, fmt::format("rank {} waited {:.3g} s in {}", rank, seconds, describe()));
  });
}

std::unique_ptr<Communicator> make_world_communicator(SharedWorld& world, int rank, Progress& progress) {
  limit_waits(progress, world, rank, rank);
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<SharedMemoryCommunicator>(world, world.group(world.world_group(), world.size()), "world", rank,
                                                    std::move(ranks), progress);
}

}  // namespace trident
