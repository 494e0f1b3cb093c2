// Seconds of collectives by the alpha-beta forms of ring algorithms, from where the ranks of a group lie.
#pragma once

#include "planner/price/gpu_rates.h"

namespace trident {

// A cluster beyond the GPU: its nodes and the network between them.
struct ClusterLinks {
  int gpus_per_node = 8;
  LinkRates nvlink;
  LinkRates network;  // per GPU
};

// `size` ranks, one in every `stride` of the order of ranks (stride of the innermost axis: 1).
struct GroupPlace {
  int size = 1;
  int stride = 1;
  int world = 0;  // ranks of the job, where one of the groups may lie across two nodes that have room for it; 0: none does
  // Ranks of the group in one node; the groups beside it use the other GPUs' network cards.
  int ranks_per_node(const ClusterLinks& links) const;
  bool crosses_nodes(const ClusterLinks& links) const { return ranks_per_node(links) < size; }
};

// `bytes` is the whole buffer. All-reduce sends 2 (n-1)/n of it, the other two (n-1)/n. Zero for groups of one.
double all_reduce_seconds(const ClusterLinks& links, const GroupPlace& group, double bytes);
double gather_seconds(const ClusterLinks& links, const GroupPlace& group, double bytes);  // all-gather or reduce-scatter

// One message between neighbours `stride` ranks apart in a line of `size`; where any of those pairs lie in two nodes, that one's.
double message_seconds(const ClusterLinks& links, const GroupPlace& line, double bytes);

// Time of `compute` seconds and `network` seconds that run beside each other, each slowing the other down by its factor while
// both run.
double overlapped_seconds(double compute, double network, double compute_slowdown, double network_slowdown);

}  // namespace trident
