// The conformance suite on ranks that are processes and exchange what lies on their devices through the node's shared memory. Run
// under mpirun; every process has a simulated CUDA of its own.
#include <cstdint>

#include "core/check.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/mpi/mpi_session.h"
#include "tests/parallel/communicator_conformance.h"

namespace trident::conformance {
namespace {

// `ranks` neighbours, staged through memory of the segment.
void launch_staged(int ranks, const std::function<void(RankContext&)>& body) {
  MpiSession& session = MpiSession::current();
  launch_neighbours(ranks, [&](RankContext& host) {
    const SimulatedScope scope;
    ValuesMemory* const segment = values_memory;
    {
      DeviceValues values(0);
      Progress& progress = session.progress();
      CudaStream compute(0, "compute", CudaStream::Mode::kImmediate, progress, 0);
      CudaStream queue0(0, "queue 0", CudaStream::Mode::kQueue, progress, 0),
          queue1(0, "queue 1", CudaStream::Mode::kQueue, progress, 0);
      const HostAllocator staging = [&](std::int64_t bytes, const std::string& name) {
        return session.world().allocate(bytes, name);
      };
      DeviceCommunicatorOptions options;
      options.staged = {.collective_bytes = 65536, .message_bytes = 16384};
      const auto communicator = make_device_communicator(
          DeviceTransport::kHostStaged, host.world.split(all_ranks(host.world), "staged"), {0, &progress, staging}, options);
      RankContext context{*communicator, compute, {&queue0, &queue1}};
      body(context);
      communicator->barrier();
    }
    values_memory = segment;
  });
}

std::vector<Case> cases() {
  const int ranks = MpiSession::current().world().size();
  std::vector<Case> all = {{launch_staged, ranks}};
  if (ranks > 2) all.push_back({launch_staged, ranks / 2});
  for (Case& one : all) one.every = 11;
  return all;
}

}  // namespace

// Evaluated after main() has joined the job.
INSTANTIATE_TEST_SUITE_P(Processes, CommunicatorConformance, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return std::to_string(info.param.ranks) + "ranks"; });

}  // namespace trident::conformance
