#include "tests/parallel/node_ranks.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>

#include "core/check.h"
#include "parallel/communicator/peer_failure.h"

namespace trident::conformance {

std::vector<int> equal_nodes(int count, int ranks) {
  std::vector<int> nodes;
  for (int r = 0; r < count * ranks; ++r) nodes.push_back(r / ranks);
  return nodes;
}

namespace {

// Zeros that take no memory before they are touched.
class Mapping {
 public:
  explicit Mapping(std::uint64_t bytes) : bytes_(bytes) {
    void* region = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TRIDENT_CHECK(region != MAP_FAILED, "no address space for a node");
    begin_ = static_cast<std::byte*>(region);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(begin_, bytes_); }
  std::byte* begin() const { return begin_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_;
  std::byte* begin_ = nullptr;
};

// Ranks are threads that behave as processes: they reach what lies in their node's segment, at other words than its addresses, and
// nothing else.
class SegmentOnly final : public PeerMemory {
 public:
  explicit SegmentOnly(const Mapping& segment) : segment_(segment) {}
  bool reaches(const void* address, std::int64_t bytes) const override {
    const auto* const at = static_cast<const std::byte*>(address);
    return at >= segment_.begin() && at + bytes <= segment_.begin() + segment_.bytes();
  }
  std::uint64_t post(const void* address) override {
    TRIDENT_CHECK(reaches(address, 1), "an address outside the segment was posted");
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - segment_.begin()) + 1;
  }
  std::byte* reach(std::uint64_t posted) override {
    TRIDENT_CHECK(posted >= 1 && posted <= segment_.bytes(), "word {} was never posted", posted);
    return segment_.begin() + (posted - 1);
  }

 private:
  const Mapping& segment_;
};

}  // namespace

class NodeCluster::Node {
 public:
  Node(int ranks, double timeout_seconds)
      : region_(SharedWorld::region_bytes(ranks)), world_(lay_out(region_, ranks), timeout_seconds, memory_) {}
  SharedWorld& world() { return world_; }
  Buffer allocate(std::int64_t bytes) {
    const std::uint64_t at = used_.fetch_add((static_cast<std::uint64_t>(bytes) + 63) / 64 * 64);
    TRIDENT_CHECK(at + static_cast<std::uint64_t>(bytes) <= segment_.bytes(), "the node's segment is full");
    return {segment_.begin() + at, bytes, MemoryKind::kHost, [](void*, std::int64_t) {}};
  }

 private:
  static std::byte* lay_out(const Mapping& region, int ranks) {
    SharedWorld::lay_out(region.begin(), region.bytes(), ranks);
    return region.begin();
  }

  Mapping segment_{std::uint64_t{8} << 30};
  std::atomic<std::uint64_t> used_{0};
  SegmentOnly memory_{segment_};
  Mapping region_;
  SharedWorld world_;
};

NodeCluster::NodeCluster(NodeLayout layout) : layout_(std::move(layout)), network_(layout_.size(), layout_.wire) {
  const int count = *std::max_element(layout_.nodes.begin(), layout_.nodes.end()) + 1;
  for (int node = 0; node < count; ++node)
    nodes_.push_back(std::make_unique<Node>(static_cast<int>(std::count(layout_.nodes.begin(), layout_.nodes.end(), node)),
                                            layout_.timeout_seconds));
}

NodeCluster::~NodeCluster() = default;

SharedWorld& NodeCluster::node_of(int rank) {
  return nodes_[static_cast<std::size_t>(layout_.nodes[static_cast<std::size_t>(rank)])]->world();
}

Buffer NodeCluster::allocate(int rank, std::int64_t bytes) {
  return nodes_[static_cast<std::size_t>(layout_.nodes[static_cast<std::size_t>(rank)])]->allocate(bytes);
}

void NodeCluster::fail(const std::string& reason) {
  for (const auto& node : nodes_) node->world().fail(reason);
}

void NodeCluster::spread_failure() {
  for (const auto& node : nodes_)
    if (node->world().failed()) return fail(node->world().failure());
}

namespace {

int local_rank_of(const std::vector<int>& nodes, int rank) {
  return static_cast<int>(std::count(nodes.begin(), nodes.begin() + rank, nodes[static_cast<std::size_t>(rank)]));
}

}  // namespace

Doorbell& NodeCluster::doorbell(int rank) { return node_of(rank).doorbell(local_rank_of(layout_.nodes, rank)); }

WireEndpoint NodeCluster::place(int rank, Wire* wire, Progress& progress) {
  return {.wire = wire, .node = &node_of(rank), .progress = &progress, .options = layout_.options, .nodes = layout_.nodes,
          .allocate = [this, rank](std::int64_t bytes, const std::string&) { return allocate(rank, bytes); }};
}

NodeRank::NodeRank(NodeCluster& cluster, int rank)
    : values([&cluster, rank](std::int64_t bytes, const std::string&) { return cluster.allocate(rank, bytes); }, rank,
             cluster.layout().outside),
      wire(cluster.network().wire(rank)),
      progress(cluster.doorbell(rank)) {
  values_memory = &values;
  communicator = make_node_world(rank, cluster.place(rank, wire.get(), progress));
}

void run_on_nodes(NodeCluster& cluster, const std::function<void(NodeRank&)>& body) {
  run_threads_on_nodes(cluster, [&](int rank) {
    NodeRank self(cluster, rank);
    body(self);
  });
}

void run_threads_on_nodes(NodeCluster& cluster, const std::function<void(int rank)>& body) {
  struct Outcome {
    std::exception_ptr error;
    bool is_consequence = false;
  };
  std::vector<Outcome> outcomes(static_cast<std::size_t>(cluster.layout().size()));
  std::atomic<bool> ended{false};
  std::jthread watcher([&] {
    while (!ended) {
      cluster.spread_failure();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < cluster.layout().size(); ++rank)
      threads.emplace_back([&, rank] {
        Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        try {
          body(rank);
        } catch (const PeerFailure&) {
          outcome = {std::current_exception(), true};
        } catch (const std::exception& error) {
          outcome = {std::current_exception(), false};
          cluster.fail(fmt::format("rank {} failed: {}", rank, error.what()));
        }
      });
  }
  ended = true;
  for (const bool consequence : {false, true})
    for (const Outcome& outcome : outcomes)
      if (outcome.error && outcome.is_consequence == consequence) std::rethrow_exception(outcome.error);
}

RankLauncher launch_on_nodes(NodeLayout layout) {
  return [layout = std::move(layout)](int ranks, const std::function<void(RankContext&)>& body) {
    TRIDENT_CHECK(ranks == layout.size(), "{} ranks on nodes of {}", ranks, layout.size());
    NodeCluster cluster(layout);
    run_on_nodes(cluster, [&](NodeRank& self) {
      RankContext context = self.context();
      body(context);
    });
  };
}

}  // namespace trident::conformance
