// One rank's place in a group of ranks that share a region of memory: what all of its operations there have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/at.h"
#include "device/host/cpu_stream.h"
#include "parallel/communicator/collective_kind.h"
#include "parallel/shared_memory/shared_world.h"

namespace trident {

struct SharedGroup {
  SharedGroup() = default;
  // `global_ranks`: empty if they are the local ranks.
  SharedGroup(SharedWorld* world, Progress* progress, GroupBlock block, std::string name, int rank, std::vector<int> local_ranks,
              std::vector<int> global_ranks);

  SharedWorld* world = nullptr;
  Progress* progress = nullptr;  // of this rank
  GroupBlock block;
  std::string name;
  int rank = 0;            // within the group
  std::vector<int> local_ranks;  // of the group's ranks in the SharedWorld, in group order
  std::vector<int> global_ranks;  // for messages: the local ranks, unless there are other nodes
  CollectiveChecks checks = CollectiveChecks::kOn;
  std::vector<const std::byte*> sources;  // scratch of an operation that is moving data, one per rank
  std::vector<std::byte*> outs;
  std::vector<std::uint64_t> stages;  // by peer: where messages to it are staged, if they ever were
  std::uint64_t splits = 0;           // so far

  int size() const { return static_cast<int>(local_ranks.size()); }
  int local_rank() const { return at(local_ranks, rank); }
  int global_rank() const { return global_rank_of(rank); }
  int global_rank_of(int r) const { return at(global_ranks, r); }
  void ring(int r) const { world->doorbell(at(local_ranks, r)).ring(); }
  void ring_others() const;

  // The control block of a new group of `members` (ranks of this group, this one among them), which the first of them lays out.
  // Called by all ranks of this group for one split after another, of which each begins with a collective operation over this
  // group: a cell is used again when everybody has read it. The host waits.
  GroupBlock new_block(std::span<const int> members);
};

}  // namespace trident
