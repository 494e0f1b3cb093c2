#include "parallel/shared_memory/shared_memory_communicator.h"

#include <cstdint>
#include <numeric>
#include <utility>

#include "core/check.h"

namespace trident {

SharedMemoryCommunicator::SharedMemoryCommunicator(SharedWorld& world, GroupBlock block, std::string name, int rank,
                                                   std::vector<int> seats, Progress& progress, std::vector<int> names)
    : HostCommunicator(name, rank, static_cast<int>(seats.size()), progress),
      group_(&world, &progress, block, std::move(name), rank, std::move(seats), std::move(names)),
      next_send_(group_.seats.size()),
      next_recv_(group_.seats.size()),
      collectives_(kOperations),
      messages_(kOperations) {
}

SharedMemoryCommunicator::~SharedMemoryCommunicator() {
  group_cancel();
  std::string pending = collectives_.describe_pending();
  if (pending.empty()) pending = messages_.describe_pending();
  if (pending.empty()) return;
  group_.world->fail(fmt::format("rank {} left with operations pending: {}", group_.world_rank(), pending));
  group_.world->wait_until_untouched(group_.seat());
}

CommunicatorOperation& SharedMemoryCommunicator::prepare(const CollectiveCall& call) {
  CollectiveOperation& operation = collectives_.take(progress(), [&] { return CollectiveOperation(group_, next_collective_); });
  operation.prepare(call);
  return operation;
}

MessageOperation& SharedMemoryCommunicator::take_message() {
  return messages_.take(progress(), [&] { return MessageOperation(group_); });
}

CommunicatorOperation& SharedMemoryCommunicator::prepare_send(ConstTensorView data, int peer) {
  MessageOperation& message = take_message();
  message.prepare_send(data, peer, next_send_[static_cast<std::size_t>(peer)]);
  return message;
}

CommunicatorOperation& SharedMemoryCommunicator::prepare_recv(TensorView data, int peer) {
  MessageOperation& message = take_message();
  message.prepare_recv(data, peer, next_recv_[static_cast<std::size_t>(peer)]);
  return message;
}

std::unique_ptr<Communicator> SharedMemoryCommunicator::make_part(std::span<const int> members, int number, std::string name) {
  meet();  // as new_block() asks
  std::vector<int> seats, names;
  for (const int r : members) {
    seats.push_back(group_.seats[static_cast<std::size_t>(r)]);
    names.push_back(group_.world_rank_of(r));
  }
  return std::make_unique<SharedMemoryCommunicator>(*group_.world, group_.new_block(members), std::move(name), number,
                                                    std::move(seats), progress(), std::move(names));
}

void limit_waits(Progress& progress, SharedWorld& world, int seat, int rank) {
  progress.set_idle_hook([&world, seat, rank](double seconds, FunctionRef<std::string()> describe) {
    world.throw_if_failed(seat);
    if (seconds >= world.timeout_seconds())
      world.raise(seat, fmt::format("rank {} waited {:.3g} s in {}", rank, seconds, describe()));
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
