// The conformance suite on communicators of device memory, with the simulated CUDA, whose streams are as late as they may be.
#include "tests/cuda/device_ranks.h"
#include "tests/parallel/communicator_conformance.h"

namespace trident::conformance {
namespace {

RankLauncher on_devices(DeviceRanks setup) {
  return [setup](int ranks, const std::function<void(RankContext&)>& body) {
    DeviceRanks all = setup;
    all.ranks = ranks;
    run_on_devices(all, body);
  };
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorConformance,
                         testing::Values(Case{on_devices({.transport = DeviceTransport::kThread}), 1},
                                         Case{on_devices({.transport = DeviceTransport::kThread}), 2}),
                         [](const auto& info) { return std::to_string(info.param.ranks) + "ranks"; });

}  // namespace trident::conformance
