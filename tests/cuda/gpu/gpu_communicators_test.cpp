// The conformance suite on communicators of device memory, with thread ranks that share a real GPU; NCCL with one rank,
// which joins a group of its own so that the library is called.
#include "core/check.h"
#include "device/cuda/cuda_gpus.h"
#include "tests/cuda/device_ranks.h"
#include "tests/parallel/communicator_conformance.h"

namespace trident::conformance {
namespace {

Case on_gpu(DeviceTransport transport, int ranks) {
  const RankLauncher launch = [transport](int count, const std::function<void(RankContext&)>& body) {
    const std::string problem = find_cuda_gpus().problem;
    if (!problem.empty()) GTEST_SKIP() << "no CUDA GPU: " << problem;
    DeviceRanks setup{.transport = transport, .ranks = count, .gpus = 1};
    setup.options.nccl.alone = NcclOptions::Alone::kJoins;
    run_on_devices(setup, body);
  };
  return {launch, ranks};
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) { return std::to_string(info.param.ranks) + "ranks"; }

}  // namespace

INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorConformance,
                         ::testing::Values(on_gpu(DeviceTransport::kThread, 1), on_gpu(DeviceTransport::kThread, 2),
                                         on_gpu(DeviceTransport::kThread, 4), on_gpu(DeviceTransport::kThread, 8)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(HostStaged, CommunicatorConformance,
                         ::testing::Values(on_gpu(DeviceTransport::kHostStaged, 2), on_gpu(DeviceTransport::kHostStaged, 4)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorConformance, ::testing::Values(on_gpu(DeviceTransport::kNccl, 1)), name_of);

// A run may end like this: nothing is left waiting on the GPU, and the GPU can be used afterwards.
TEST(NcclOnAGpu, AbortEndsWhatWasCalled) {
  const std::string problem = find_cuda_gpus().problem;
  if (!problem.empty()) GTEST_SKIP() << "no CUDA GPU: " << problem;
  DeviceRanks setup{.transport = DeviceTransport::kNccl, .ranks = 1, .gpus = 1};
  setup.options.nccl.alone = NcclOptions::Alone::kJoins;
  run_on_devices(setup, [](RankContext& c) {
    Values x(DType::kF32, 1 << 20, [](auto i) { return value(0, i); });
    for (int i = 0; i < 10; ++i) c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kSum);
    c.world.abort("a test ends it");
    EXPECT_THROW(c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kSum), CommunicationError);
  });
  run_on_devices(setup, [](RankContext& c) {
    Values x(DType::kF32, 1000, [](auto i) { return value(0, i); });
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
    c.compute.synchronize();
    expect_values(x, [](auto i) { return value(0, i); }, "all_reduce after an abort");
  });
}

}  // namespace trident::conformance
