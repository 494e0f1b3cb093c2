// Which ranks share a node, over MPI, and what the nodes are called.
#pragma once

#include <string>
#include <vector>

#include "device/buffer.h"
#include "parallel/hierarchical/node_segment.h"
#include "parallel/mpi/mpi_group.h"

namespace trident {

// Collective over `world`: the ranks of this rank's node, in world order. ranks_per_node as in ProcessWorldOptions; ConfigError
// where such a node would be spread over machines.
MpiGroup ranks_of_my_node(const MpiGroup& world, int ranks_per_node);

// Collective over `world`: the node of every rank, numbered by their lowest ranks. Where ranks were dealt out in blocks or in turn,
// which launchers do, two small reductions say so; else a number of each rank goes through rank 0 to all.
std::vector<int> number_nodes(MpiGroup world, MpiGroup node);

// The host name of every node, once in each node's segment.
class NodeHosts {
 public:
  // Collective over `world`. `host`: of this rank's node; `segment`: that node's. Nodes as number_nodes() numbers them.
  NodeHosts(MpiGroup world, const MpiGroup& node, const std::string& host, NodeSegment segment);
  std::string of(int node) const;

 private:
  NodeSegment segment_;  // in which
  Buffer text_;          // the lines, kept by the node's first rank
  const char* lines_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace trident
