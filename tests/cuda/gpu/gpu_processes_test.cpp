// The conformance suite with ranks that are processes and share GPU 0: through the host's memory, and by NCCL where it lets them
// (the launcher sets NCCL_HOSTID to another value in every process, see NcclOptions::allow_shared_gpus).
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "tests/cuda/device_ranks.h"
#include "tests/mpi/mpi_session.h"
#include "tests/parallel/communicator_conformance.h"

namespace trident::conformance {
namespace {

void run_on_gpu(DeviceTransport transport, const std::function<void(RankContext&)>& body) {
  MpiSession& self = MpiSession::current();
  std::unique_ptr<Communicator> host = self.communicator().split(all_ranks(self.communicator()), "card");
  DeviceValues values(0);
  CudaStream compute(0, "compute", CudaStream::Mode::kImmediate, self.progress(), 0);
  CudaStream queue0(0, "queue 0", CudaStream::Mode::kQueue, self.progress(), 0);
  CudaStream queue1(0, "queue 1", CudaStream::Mode::kQueue, self.progress(), 0);
  const DevicePlace place{0, &self.progress(),
                          [&](std::int64_t bytes, const std::string& name) { return self.world().allocate(bytes, name); }};
  DeviceCommunicatorOptions options;
  options.nccl.allow_shared_gpus = true;
  options.nccl.traffic = {.max_ctas = 2, .messages = NcclTraffic::Messages::kAll};
  const std::unique_ptr<Communicator> communicator = make_device_communicator(transport, std::move(host), place, options);
  RankContext context{*communicator, compute, {&queue0, &queue1}};
  body(context);
  communicator->barrier();
}

Case on_processes(DeviceTransport transport) {
  const RankLauncher launch = [transport](int ranks, const std::function<void(RankContext&)>& body) {
    ASSERT_EQ(MpiSession::current().world().size(), ranks);
    ValuesMemory* const values_before = values_memory;
    try {
      run_on_gpu(transport, body);
    } catch (const std::exception& error) {  // peers may wait for this rank: the job ends
      const int rank = MpiSession::current().world().rank();
      fmt::print("[rank {}] {}\n", rank, error.what());
      std::fflush(stdout);
      MpiSession::current().world().fail(fmt::format("rank {}: {}", rank, error.what()));
      _exit(1);
    }
    values_memory = values_before;
  };
  Case made{launch, MpiSession::current().world().size()};
  made.every =
      transport == DeviceTransport::kNccl ? 11 : 2;  // several ranks of one GPU take milliseconds for each of NCCL's operations
  if (transport == DeviceTransport::kNccl) made.sums = Case::Sums::kInSomeOrder;
  return made;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) { return std::to_string(info.param.ranks) + "processes"; }

}  // namespace

// Evaluated after main() has joined the job.
INSTANTIATE_TEST_SUITE_P(HostStaged, CommunicatorConformance, ::testing::ValuesIn({on_processes(DeviceTransport::kHostStaged)}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorConformance, ::testing::ValuesIn({on_processes(DeviceTransport::kNccl)}), name_of);

}  // namespace trident::conformance
