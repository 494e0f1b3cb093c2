// The conformance suite on ranks that are processes. Run under mpirun; how many ranks there are, and how many of them count as a
// node, is decided there.
#include <algorithm>
#include <array>
#include <vector>

#include "tests/mpi/mpi_session.h"
#include "tests/parallel/communicator_conformance.h"

namespace trident::conformance {
namespace {

// The case in which this rank and `members` make a group, with the nodes that it spans numbered by their first members.
Case group_of(const RankLauncher& launch, const std::vector<int>& members) {
  std::vector<int> seen, nodes;
  for (const int member : members) {
    const int node = MpiSession::current().world().nodes()[static_cast<std::size_t>(member)];
    const auto place = std::find(seen.begin(), seen.end(), node);
    nodes.push_back(static_cast<int>(place - seen.begin()));
    if (place == seen.end()) seen.push_back(node);
  }
  return {launch, static_cast<int>(members.size()), nodes};
}

// All ranks, and halves of them: neighbours may share a node, strangers lie on as many nodes as possible.
std::vector<Case> cases() {
  const int ranks = MpiSession::current().world().size(), rank = MpiSession::current().world().rank();
  std::vector<int> all, neighbours, strangers;
  for (int r = 0; r < ranks; ++r) {
    all.push_back(r);
    if (r / std::max(1, ranks / 2) == rank / std::max(1, ranks / 2)) neighbours.push_back(r);
    if (r % 2 == rank % 2) strangers.push_back(r);
  }
  return {group_of(launch_neighbours, all), group_of(launch_neighbours, neighbours), group_of(launch_strangers, strangers)};
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  return fmt::format("{}{}", info.param.ranks, std::array{"ranks", "neighbours", "strangers"}[info.index]);
}

}  // namespace

// Evaluated after main() has joined the job.
INSTANTIATE_TEST_SUITE_P(Processes, CommunicatorConformance, ::testing::ValuesIn(cases()), name_of_case);

}  // namespace trident::conformance
