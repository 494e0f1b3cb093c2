// The conformance suite on ranks that are processes. Run under mpirun; how many ranks there are, and how many of them count as a node,
// is decided there.
#include "tests/mpi/mpi_session.h"
#include "tests/parallel/communicator_conformance.h"

namespace trident::conformance {
namespace {

// All ranks, and halves of them: neighbours may share a node, strangers lie on as many nodes as possible.
std::vector<Case> cases() {
  const int ranks = MpiSession::current().world().size();
  if (ranks < 2) return {{launch_neighbours, ranks}};
  return {{launch_neighbours, ranks}, {launch_neighbours, ranks / 2}, {launch_strangers, ranks / 2}};
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  return fmt::format("{}{}", info.param.ranks, std::array{"ranks", "neighbours", "strangers"}[info.index]);
}

}  // namespace

// Evaluated after main() has joined the job.
INSTANTIATE_TEST_SUITE_P(Processes, CommunicatorConformance, testing::ValuesIn(cases()), name_of_case);

}  // namespace trident::conformance
