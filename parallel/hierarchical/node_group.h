// A process group whose ranks lie on several nodes, some of them together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/at.h"
#include "device/buffer.h"
#include "parallel/shared_memory/shared_group.h"
#include "parallel/transport/wire_group.h"

namespace trident {

// One rank's place in such a group: what all of its collectives (node_collective.h) have in common. Group ranks number slices.
struct NodeGroup {
  // `block`: of the members on this node, unless this rank is the only one there.
  NodeGroup(std::shared_ptr<WireEndpoint> endpoint, const std::string& name, int rank, const std::vector<int>& global_ranks,
            std::int32_t channel, GroupBlock block);

  int size() const { return across.size(); }
  int num_nodes() const { return static_cast<int>(members.size()); }
  const std::vector<int>& on_my_node() const { return at(members, my_node); }
  int num_local() const { return static_cast<int>(on_my_node().size()); }
  // The member of this node that carries what member `index` sends to and receives from other nodes.
  int carrier(int index) const { return index % rails; }
  int node_of(int rank) const;
  bool is_even() const { return num_local() == rails; }  // all members of this node are carriers
  // The group rank of every node's slice number `round` on rail `index`, or -1.
  const int* slices_on_rail(int round) const { return &at(slices, round * num_nodes()); }
  // The same, as positions in a round's part of the scratch buffer: the number of the node, or -1.
  const int* nodes_on_rail(int round) const { return &at(places, round * num_nodes()); }

  WireGroup across;                      // all ranks; for messages, and slices of all_to_all
  std::vector<std::vector<int>> members;  // group ranks of each node, in order; nodes in the order of their first
  int my_node = 0, my_index = 0;         // of this rank
  int rails = 0;
  int rounds = 0, most_rounds = 0;       // slices of a node that this rank's rail carries, at most; most_rounds: that any rail does
  SharedGroup local;                     // this node's members
  std::unique_ptr<WireGroup> rail;       // if this rank is a carrier
  std::vector<int> slices, places;       // by round and node
  std::vector<int> elsewhere;            // r for ranks of other nodes, else -1
  std::vector<const std::byte*> sources;  // of a reduction, by member of this node
  std::int64_t scratch_bytes = 0;
  std::byte* scratch = nullptr;          // sums of the node
  std::uint64_t next_local = 0;          // sequence number in `local`
  WireGroup::Turns turns;                // of operations

 private:
  std::unique_ptr<std::byte[]> own_scratch_;  // takes no memory before it is used
  Buffer shared_scratch_;                     // where not all are carriers: the others read it

  void lay_rail(std::shared_ptr<WireEndpoint> endpoint, std::int32_t channel, int most_members);
};

// The number of a global rank on its node.
int local_rank_of(const std::vector<int>& nodes, int global_rank);

}  // namespace trident
