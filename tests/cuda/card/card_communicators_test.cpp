// The conformance suite on communicators of device memory, with thread ranks that share a real card; NCCL with one rank.
#include "device/cuda/cuda_cards.h"
#include "tests/cuda/device_ranks.h"
#include "tests/parallel/communicator_conformance.h"

namespace trident::conformance {
namespace {

Case on_card(DeviceTransport transport, int ranks) {
  const RankLauncher launch = [transport](int count, const std::function<void(RankContext&)>& body) {
    const std::string problem = find_cuda_cards().problem;
    if (!problem.empty()) GTEST_SKIP() << "no CUDA card: " << problem;
    run_on_devices({.transport = transport, .ranks = count, .cards = 1}, body);
  };
  return {launch, ranks};
}

std::string name_of(const testing::TestParamInfo<Case>& info) { return std::to_string(info.param.ranks) + "ranks"; }

}  // namespace

INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorConformance,
                         testing::Values(on_card(DeviceTransport::kThread, 1), on_card(DeviceTransport::kThread, 2),
                                         on_card(DeviceTransport::kThread, 4), on_card(DeviceTransport::kThread, 8)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(HostStaged, CommunicatorConformance,
                         testing::Values(on_card(DeviceTransport::kHostStaged, 2), on_card(DeviceTransport::kHostStaged, 4)), name_of);
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorConformance, testing::Values(on_card(DeviceTransport::kNccl, 1)), name_of);

}  // namespace trident::conformance
