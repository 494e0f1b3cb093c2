// Thread ranks on several pretended nodes: each node has a shared world of its own, and between nodes there is only a
// ThreadNetwork.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/hierarchical/node_communicator.h"
#include "tests/parallel/rank_context.h"
#include "tests/parallel/shared_values.h"
#include "tests/parallel/thread_wire.h"

namespace trident::conformance {

struct NodeLayout {
  std::vector<int> nodes;  // of every rank
  MessageOptions options{.chunk_bytes = 1 << 18, .staging_bytes = 1 << 20};  // less than a huge page, which takes long to clear
  ThreadWireOptions wire{};
  double timeout_seconds = 60;
  unsigned outside = 4;  // of 8 values: so many lie where the ranks of their node do not reach
  int size() const { return static_cast<int>(nodes.size()); }
};

// `count` nodes of `ranks` ranks each.
std::vector<int> equal_nodes(int count, int ranks);

class NodeCluster {
 public:
  explicit NodeCluster(NodeLayout layout);
  ~NodeCluster();

  const NodeLayout& layout() const { return layout_; }
  ThreadNetwork& network() { return network_; }
  SharedWorld& node_of(int rank);
  // The doorbell of a rank.
  Doorbell& doorbell(int rank);
  // A rank's end of the wire, for make_node_world().
  WireEndpoint place(int rank, Wire* wire, Progress& progress);
  // Memory that the ranks of that rank's node reach; nobody reaches any other.
  Buffer allocate(int rank, std::int64_t bytes);
  // Fails the world of every node.
  void fail(const std::string& reason);
  // Tells all nodes of a failure that one has noted, as whoever watches over a job of processes does.
  void spread_failure();

 private:
  class Node;
  NodeLayout layout_;
  ThreadNetwork network_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

// A rank of a cluster with its streams; made by its thread.
struct NodeRank {
  NodeRank(NodeCluster& cluster, int rank);
  std::int64_t messages_sent() const { return static_cast<const ThreadWire&>(*wire).messages_sent(); }
  RankContext context() { return {*communicator, compute, {&queue0, &queue1}}; }

  NodeRank(const NodeRank&) = delete;
  NodeRank& operator=(const NodeRank&) = delete;
  ~NodeRank() { values_memory = nullptr; }

  MixedValues values;  // of this thread as long as this object lives
  std::unique_ptr<Wire> wire;
  Progress progress;
  CpuStream compute{"compute", CpuStream::Mode::kImmediate, progress};
  CpuStream queue0{"queue 0", CpuStream::Mode::kQueue, progress};
  CpuStream queue1{"queue 1", CpuStream::Mode::kQueue, progress};
  std::unique_ptr<Communicator> communicator;  // after the streams: it is destroyed first
};

// Runs `body` on a thread of every rank of the cluster. Afterwards the first error that is not a peer's is thrown on.
void run_threads_on_nodes(NodeCluster& cluster, const std::function<void(int rank)>& body);
void run_on_nodes(NodeCluster& cluster, const std::function<void(NodeRank&)>& body);

// For the suites that know only RankContext.
RankLauncher launch_on_nodes(NodeLayout layout);

}  // namespace trident::conformance
