#include "parallel/shared_memory/shared_group.h"

#include <fmt/core.h>

#include <cstdint>
#include <utility>

namespace trident {

SharedGroup::SharedGroup(SharedWorld* world, Progress* progress, GroupBlock block, std::string name, int rank,
                         std::vector<int> local_ranks, std::vector<int> global_ranks)
    : world(world),
      progress(progress),
      block(block),
      name(std::move(name)),
      rank(rank),
      local_ranks(std::move(local_ranks)),
      global_ranks(std::move(global_ranks)) {
  if (this->global_ranks.empty()) this->global_ranks = this->local_ranks;
  sources.resize(this->local_ranks.size());
  outs.reserve(this->local_ranks.size());
  stages.resize(this->local_ranks.size());
}

void SharedGroup::ring_others() const {
  for (int r = 0; r < size(); ++r)
    if (r != rank) ring(r);
}

GroupBlock SharedGroup::new_block(std::span<const int> members) {
  const std::uint64_t number = ++splits;
  const int ranks = static_cast<int>(members.size());
  SplitCell& cell = block.split_cell(members.front());
  if (members.front() == rank) {
    cell.block = world->allocate_group(ranks);
    cell.number.store(number, std::memory_order_release);
    for (const int r : members.subspan(1)) ring(r);
  } else {
    progress->wait_until(
        [&] { return cell.number.load(std::memory_order_acquire) == number; },
        [&] { return fmt::format("a new group of {}: rank {} has not made it", name, global_rank_of(members.front())); });
  }
  return world->group(cell.block, ranks);
}

}  // namespace trident
