// The conformance suite on thread ranks.
#include "tests/parallel/communicator_conformance.h"
#include "tests/parallel/thread_ranks.h"

namespace trident::conformance {

INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorConformance,
                         ::testing::Values(Case{launch_threads, 1}, Case{launch_threads, 2}, Case{launch_threads, 3},
                                         Case{launch_threads, 4}, Case{launch_threads, 8}),
                         [](const auto& info) { return std::to_string(info.param.ranks) + "ranks"; });

}  // namespace trident::conformance
