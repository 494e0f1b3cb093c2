// The conformance suite on communicators of device memory, with the simulated CUDA, whose streams are as late as they may be.
#include <cstdint>

#include "tests/cuda/device_ranks.h"
#include "tests/cuda/simulated/nccl.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/parallel/communicator_conformance.h"

namespace trident::conformance {
namespace {

Case on_devices(DeviceRanks setup) {
  const RankLauncher launch = [setup](int ranks, const std::function<void(RankContext&)>& body) {
    const SimulatedScope scope({.devices = setup.gpus});
    DeviceRanks all = setup;
    all.ranks = ranks;
    run_on_devices(all, body);
    EXPECT_EQ(simulated::nccl_complaints(), std::vector<std::string>{});
    EXPECT_EQ(simulated::nccl_communicators(), 0);
    simulated::reset_nccl();
  };
  Case made{launch, setup.ranks};
  made.every = setup.ranks < 4 ? 5 : setup.ranks < 8 ? 11 : 17;  // no divisor of the numbers of streams and counts
  if (setup.transport == DeviceTransport::kNccl) made.sums = Case::Sums::kInSomeOrder;
  return made;
}

// Every rank has a GPU; all messages may go their own ways.
Case on_nccl(int ranks) {
  DeviceRanks setup{.transport = DeviceTransport::kNccl, .ranks = ranks, .gpus = ranks};
  setup.options.nccl.traffic = {.max_ctas = 2, .messages = NcclTraffic::Messages::kAll};
  return on_devices(setup);
}

// As the check of a GPU does it: a group of one that calls the library.
Case alone_in_nccl() {
  DeviceRanks setup{.transport = DeviceTransport::kNccl, .ranks = 1, .gpus = 1};
  setup.options.nccl.alone = NcclOptions::Alone::kJoins;
  return on_devices(setup);
}

// So small a staging buffer that operands are cut.
Case staged(int ranks, std::int64_t bytes) {
  DeviceRanks setup{.transport = DeviceTransport::kHostStaged, .ranks = ranks, .gpus = 1};
  setup.options.staged = {.collective_bytes = bytes, .message_bytes = bytes / 2};
  return on_devices(setup);
}

Case between_threads(int ranks, int gpus) {
  return on_devices({.transport = DeviceTransport::kThread, .ranks = ranks, .gpus = gpus});
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return std::to_string(info.param.ranks) + "ranks" + std::to_string(info.index);
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(DeviceThreads, CommunicatorConformance,
                         ::testing::Values(between_threads(1, 1), between_threads(2, 1), between_threads(4, 2),
                                         between_threads(8, 1)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(HostStaged, CommunicatorConformance,
                         ::testing::Values(staged(2, 16384), staged(4, 1 << 20), staged(8, 65536)), name_of);
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorConformance,
                         ::testing::Values(on_nccl(1), alone_in_nccl(), on_nccl(2), on_nccl(4), on_nccl(8)), name_of);

}  // namespace trident::conformance
