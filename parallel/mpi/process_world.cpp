// Ranks as processes: MPI tells them of each other, carries messages between nodes and sets up the segment that a node's ranks
// share.
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "core/at.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "core/host_name.h"
#include "parallel/communicator/launcher.h"
#include "parallel/health/descriptor_handover.h"
#include "parallel/health/lifeline_dial.h"
#include "parallel/hierarchical/node_communicator.h"
#include "parallel/hierarchical/node_segment.h"
#include "parallel/mpi/mpi_group.h"
#include "parallel/mpi/mpi_nodes.h"
#include "parallel/mpi/mpi_wire.h"
#include "parallel/mpi/process_world.h"
#include "parallel/shared_memory/shared_memory_communicator.h"

namespace trident {

namespace {

constexpr double kHandoverSeconds = 30.0;  // everybody asks within milliseconds; this is for those that never will

// "Open MPI v4.1.4".
std::string library_name() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  const std::string name(text.data(), static_cast<std::size_t>(length));
  return name.substr(0, name.find_first_of(",\n"));
}

// The version of Open MPI; 0 for another library.
int open_mpi_major() {
  constexpr std::string_view kName = "Open MPI v";
  const std::string name = library_name();
  return name.starts_with(kName) ? std::atoi(name.c_str() + kName.size()) : 0;
}

// Prepares the process before MPI_Init, which opens ports, and later connections, without end where descriptors lack.
void prepare_process() {
  const Environment environment = [](const char* name) -> const char* { return std::getenv(name); };
  const std::string user_file = user_file_of_open_mpi(environment);
  const Placement place = placement_of(environment);
  const std::int64_t nodes = std::max(place.nodes, 1), ranks = place.ranks;
  const std::int64_t interfaces =
      place.nodes == 1 ? 0 : static_cast<std::int64_t>(own_addresses(interfaces_for_mpi(environment, user_file), host_name()).size());
  // The other nodes over each interface, and what a process has open anyway; rank 0 is in touch with everybody twice.
  const std::int64_t needed = std::max<std::int64_t>(nodes * interfaces + 128, place.is_rank_0 ? 2 * ranks + (nodes > 1 ? 256 : 128) : 0);
  make_room_for_descriptors(
      needed, fmt::format("{} of {} ranks on {} node{}, with {} network addresses,", place.is_rank_0 ? "rank 0" : "a rank", ranks,
                          nodes, nodes == 1 ? "" : "s", interfaces));
  const int major = open_mpi_major();
  if (major == 0) return;
  for (const auto& [name, value] : settings_without_ports(environment, user_file, major)) setenv(name.c_str(), value.c_str(), 1);
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) != 0) return;
  const auto bytes = static_cast<std::int64_t>(shm.f_bavail) * static_cast<std::int64_t>(shm.f_frsize);
  if (const auto folder = folder_instead_of_shm(environment, bytes, major)) setenv(folder->first.c_str(), folder->second.c_str(), 1);
}

// MPI_Init and MPI_Finalize. What fails on one rank only must not finalize: that waits for all others.
class MpiLibrary {
 public:
  MpiLibrary() {
    int begun = 0, provided = 0;
    check_mpi(MPI_Initialized(&begun), "MPI_Initialized");
    TRIDENT_CHECK(begun == 0, "a process joins its job once");
    prepare_process();
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED)
      throw ConfigError("this MPI library cannot be used by a process with several threads; use one built with thread support");
  }
  void finalize() { check_mpi(MPI_Finalize(), "MPI_Finalize"); }
};

MpiGroup duplicate_of_world() {
  MPI_Comm own = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &own), "MPI_Comm_dup");
  return MpiGroup(own);
}

// The node's segment with a SharedWorld laid out in it. What the system refuses to one rank is thrown by all.
class SegmentSetup {
 public:
  SegmentSetup(MpiGroup world, MpiGroup node) {
    std::optional<DescriptorHandover> handover;
    if (node.rank() == 0)
      attempt([&] {
        const std::uint64_t control_bytes = SharedWorld::region_bytes(node.size());
        segment = NodeSegment::create(static_cast<std::int64_t>(control_bytes));
        SharedWorld::lay_out(segment->control(), control_bytes, node.size());
        handover.emplace();
      });
    const std::string name = node.broadcast(handover ? handover->name() : "", 0);
    if (!name.empty())
      attempt([&] {
        if (node.rank() == 0) handover->give(segment->descriptor(), node.size() - 1, kHandoverSeconds);
        else segment = NodeSegment::attach(receive_descriptor(name, kHandoverSeconds));
      });
    int first = first_rank(world, !error_.empty() && !only_waited_);  // who waited does not know why nobody came
    if (first < 0) first = first_rank(world, !error_.empty());
    if (first >= 0) refusal = world.broadcast(error_, first);
  }

  std::optional<NodeSegment> segment;
  std::string refusal;

 private:
  template <class F> void attempt(F action) {
    try {
      action();
    } catch (const CommunicationError& error) {
      error_ = error.what(), only_waited_ = true;
    } catch (const std::exception& error) {
      error_ = error.what();
    }
  }
  std::string error_;
  bool only_waited_ = false;  // for another rank
};

class MpiWorld final : public ProcessWorld {
 public:
  explicit MpiWorld(const ProcessWorldOptions& options)
      : world_(duplicate_of_world()),
        node_(ranks_of_my_node(world_, options.ranks_per_node)),
        nodes_(number_nodes(world_, node_)),
        wire_(world_, [this](int rank) { return hosts_.of(at(nodes_, rank)); }, options.piece_bytes, calls_),
        segment_(shared_segment()),
        hosts_(world_, node_, host_name(), segment_),
        memory_(segment_),
        shared_(segment_.control(), options.timeout_seconds, memory_) {}

  ~MpiWorld() override {
    if (!finished_) shared_.fail(fmt::format("rank {} ended", world_.rank()));
  }

  std::string describe() const override {
    return fmt::format("{}: {} rank{} on {} node{}, shared memory in {}", library_name(), size(), size() == 1 ? "" : "s",
                       num_nodes(), num_nodes() == 1 ? "" : "s", segment_pages());
  }
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  const std::vector<int>& nodes() const override { return nodes_; }
  int local_rank() const override { return node_.rank(); }
  int local_size() const override { return node_.size(); }
  std::vector<std::string> all_gather(const std::string& mine) override { return world_.all_gather(mine); }
  Rendezvous& node() override { return node_; }
  void all_reduce(std::span<std::int64_t> numbers, ReduceOp op) override { world_.all_reduce(numbers, op); }
  std::string broadcast(const std::string& text, int root) override { return world_.broadcast(text, root); }
  std::vector<std::string> gather(const std::string& mine) override { return world_.gather(mine); }
  Doorbell& doorbell() override { return shared_.doorbell(node_.rank()); }
  Buffer allocate(std::int64_t bytes, const std::string& name) override { return segment_.allocate(bytes, name); }
  Wire& wire() override { return wire_; }
  void fail(const std::string& reason) override { shared_.fail(reason); }
  const CallMark& calls() const override { return calls_; }
  std::int64_t inter_node_bytes() const override { return wire_.bytes_sent(); }

  std::unique_ptr<Communicator> communicator(Progress& progress) override {
    if (node_.size() == world_.size()) return make_world_communicator(shared_, rank(), progress);
    const auto allocate = [this](std::int64_t bytes, const std::string& name) { return this->allocate(bytes, name); };
    return make_node_world(
        rank(), {.wire = &wire_, .node = &shared_, .progress = &progress, .nodes = nodes_, .allocate = allocate});
  }

  void finish() override {
    // Not MPI_Barrier: a peer that failed never comes.
    MPI_Request barrier = MPI_REQUEST_NULL;
    check_mpi(calls_.during(MarkedCall::kIbarrier, [&] { return MPI_Ibarrier(world_.comm(), &barrier); }), "MPI_Ibarrier");
    const double begin = monotonic_seconds();
    for (int done = 0; done == 0;) {
      check_mpi(calls_.during(MarkedCall::kTest, [&] { return MPI_Test(&barrier, &done, MPI_STATUS_IGNORE); }), "MPI_Test");
      if (done != 0) break;
      shared_.throw_if_failed(node_.rank());
      if (const double waited = monotonic_seconds() - begin; waited >= shared_.timeout_seconds())
        shared_.raise(node_.rank(), fmt::format("rank {} waited {:.3g} s for the others to finish", rank(), waited));
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    leave();
  }

  void leave() override {
    finished_ = true;
    calls_.during(MarkedCall::kFinalize, [&] { library_.finalize(); });
  }

 private:
  int num_nodes() const { return 1 + *std::max_element(nodes_.begin(), nodes_.end()); }

  NodeSegment shared_segment() {
    SegmentSetup setup(world_, node_);
    if (setup.refusal.empty()) return *setup.segment;
    library_.finalize();  // all ranks are here
    throw ConfigError(setup.refusal);
  }

  MpiLibrary library_;
  CallMark calls_;
  MpiGroup world_, node_;
  std::vector<int> nodes_;
  MpiWire wire_;
  NodeSegment segment_;
  NodeHosts hosts_;
  SegmentMemory memory_;
  SharedWorld shared_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<ProcessWorld> join_process_world(const ProcessWorldOptions& options) { return std::make_unique<MpiWorld>(options); }

}  // namespace trident
