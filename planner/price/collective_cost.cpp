#include "planner/price/collective_cost.h"

#include <algorithm>
#include <numeric>

namespace trident {

int GroupPlace::ranks_per_node(const ClusterLinks& links) const {
  const int span = size * std::max(1, stride), together = std::clamp(links.gpus_per_node / std::max(1, stride), 1, size);
  if (world <= links.gpus_per_node || together < size || links.gpus_per_node % span == 0) return together;
  return std::clamp(std::gcd(links.gpus_per_node, span) / std::max(1, stride), 1, size);  // nodes of 6 cut every third 4 in halves
}

namespace {

// A ring through all ranks: its slowest link sets the rate, its hops add up. With r ranks of the group in a node, r rings start at
// different GPUs, so that r GPUs carry the traffic between nodes.
double ring_seconds(const ClusterLinks& links, const GroupPlace& group, double sent, double passes) {
  const int local = group.ranks_per_node(links);
  double rate = links.nvlink.bytes_per_s * links.nvlink.fraction;
  double hops = (group.size - 1) * links.nvlink.hop_s;
  double start = links.nvlink.start_s;
  if (group.crosses_nodes(links)) {
    const double gpus = links.network.bytes_per_s * links.network.fraction * local;
    rate = local > 1 ? std::min(rate, gpus) : gpus;
    const int nodes = (group.size + local - 1) / local;
    hops = (group.size - nodes) * links.nvlink.hop_s + (nodes - 1) * links.network.hop_s;
    start = links.network.start_s;
  }
  return start + passes * hops + sent / rate;
}

}  // namespace

double all_reduce_seconds(const ClusterLinks& links, const GroupPlace& group, double bytes) {
  if (group.size <= 1 || bytes <= 0) return 0;
  return ring_seconds(links, group, 2 * bytes * (group.size - 1) / group.size, 2);
}

double gather_seconds(const ClusterLinks& links, const GroupPlace& group, double bytes) {
  if (group.size <= 1 || bytes <= 0) return 0;
  return ring_seconds(links, group, bytes * (group.size - 1) / group.size, 1);
}

double message_seconds(const ClusterLinks& links, const GroupPlace& line, double bytes) {
  if (line.size <= 1 || bytes <= 0) return 0;
  const LinkRates& link = line.crosses_nodes(links) ? links.network : links.nvlink;
  return link.hop_s + bytes / (link.bytes_per_s * link.message_fraction);
}

double overlapped_seconds(double compute, double network, double compute_slowdown, double network_slowdown) {
  const double slow_compute = compute * compute_slowdown;
  const double slow_network = network * network_slowdown;
  if (slow_compute <= slow_network) return slow_compute + (network - slow_compute / network_slowdown);
  return slow_network + (compute - slow_network / compute_slowdown);
}

}  // namespace trident
