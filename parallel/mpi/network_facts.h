// Which network the ranks of different nodes use, as the system of this node shows it.
#pragma once

#include <string>
#include <vector>

namespace trident {

struct NetworkFacts {
  // Active ports: "mlx5_0 port 1 (100 Gb/sec (4X EDR))"; Omni-Path counts, cards for Ethernet do not.
  std::vector<std::string> infiniband;
  // That are up, without loopback: "eth0 (25 Gb/s)", or "eth0" where the system knows no rate.
  std::vector<std::string> interfaces;
  // A device's file that this process has open to pass by TCP: "/dev/infiniband/uverbs0"; empty if none.
  std::string open_device;
};

// Reads the facts of this process and node. MPI opens its devices late: call this after messages between nodes.
// Reads below `root`, which tests replace. What cannot be read is left out.
NetworkFacts network_facts(const std::string& root = "");

// "between nodes: TCP over eth0 (25 Gb/s), as far as btl_tcp_if_include and btl_tcp_if_exclude allow" or "between nodes:
// /dev/infiniband/uverbs0, mlx5_0 ...".
std::string describe(const NetworkFacts& facts);

// A warning for InfiniBand that idles while messages go over TCP; empty if there is none, or it is used.
std::string network_warning(const NetworkFacts& facts);

}  // namespace trident
