// The collectives of a group whose ranks lie on several nodes, some of them together.
//
// Member j of every node forms rail j, j < rails, the least number of members on a node; rail j carries the shares, or the slices
// of the members j, j + rails, .. of every node. An operation is a row of parts: on the node, along the rail, on the node. Sums are
// taken over a node in rank order, rounded, and then over nodes in order: the same bits on every rank, every time.
//
//   all_reduce      carriers add their share of the node's operands; all_reduce along the rail; everybody takes the shares
//   reduce_scatter  carriers add the node's part of every slice they carry; reduce_scatter along the rail; others take theirs
//   all_gather      carriers take the slices they carry; all_gather along the rail; everybody takes the rest
//   broadcast       the root's node takes the operand; broadcast of shares along the rails; other nodes take the shares
//   all_to_all      slices of the own node; messages to all other ranks
//   barrier         the node; the first rail; the node
//
// reduce_scatter keeps the node's sums in a scratch buffer and therefore goes chunk by chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/at.h"
#include "device/buffer.h"
#include "parallel/communicator/host_communicator.h"
#include "parallel/shared_memory/collective_operation.h"
#include "parallel/shared_memory/shared_group.h"
#include "parallel/transport/wire_collective.h"
#include "parallel/transport/wire_group.h"

namespace trident {

// One rank's place in a process group whose ranks lie on several nodes, some of them together: what all of its collectives have in
// common. Group ranks number slices.
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

class NodeCollective final : public CommunicatorOperation, private PeerWork {
 public:
  explicit NodeCollective(NodeGroup& group)
      : group_(&group),
        local_(group.local, group.next_local),
        rail_(group.rail ? *group.rail : group.across),
        across_(group.across) {}

  void prepare(const CollectiveCall& call);
  void issue() override;
  bool poll() override;
  std::string describe() const override;

 private:
  enum class Stage : std::uint8_t { kPrepared, kIssued, kBefore, kAcross, kAfter, kDone };

  bool is(CommOperation operation) const { return whole_.operation == operation; }
  std::int64_t element() const { return size_of(call_.in.dtype()); }
  int lanes() const;  // rails that carry something
  bool is_carrier() const { return group_->my_index < lanes(); }
  IndexRange share(int lane) const { return share_of(call_.in.num_elements(), call_.in.dtype(), lanes(), lane); }
  bool is_on_roots_node() const;

  void start();
  void next_part();
  bool has_part() const;
  void begin_part();
  bool poll_part();
  void begin_across();
  std::int64_t chunk_count() const;  // elements of the current chunk of every slice
  std::byte* sums(int round, int node) const;

  // The part of the collective within the node.
  void work(const PeerOperands& operands) override;
  void add(const PeerOperands& operands, std::int64_t first, std::int64_t count, std::byte* out);
  static void take(const PeerOperands& operands, int index, std::int64_t from, std::int64_t bytes, std::byte* out);
  void add_share(const PeerOperands& operands);
  void take_shares(const PeerOperands& operands);
  void take_from_root(const PeerOperands& operands);
  void add_slices(const PeerOperands& operands);
  void take_sum(const PeerOperands& operands);
  void take_carried(const PeerOperands& operands);
  void take_gathered(const PeerOperands& operands);
  void take_slices(const PeerOperands& operands);

  NodeGroup* group_;
  CollectiveOperation local_;
  WireCollective rail_, across_;
  CollectiveCall call_;
  CommFingerprint whole_;
  Stage stage_ = Stage::kPrepared;
  bool in_part_ = false;
  std::uint64_t sequence_ = 0;
  std::int64_t slice_ = 0;            // elements of a slice
  std::int64_t first_ = 0, chunk_ = 0;  // of every slice: the current chunk's first element, elements of a full chunk
  int round_ = 0;
};

}  // namespace trident
