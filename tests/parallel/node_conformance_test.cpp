// The conformance suite on ranks of several nodes: each on its own, several together, unequally many; with operands in one piece
// and in tiny ones.
#include "tests/parallel/communicator_conformance.h"
#include "tests/parallel/node_ranks.h"

namespace trident::conformance {
namespace {

constexpr MessageOptions kTinyPieces{.chunk_bytes = 520, .staging_bytes = 1 << 15, .small_bytes = 64, .message_bytes = 3000};
constexpr MessageOptions kNothingIsSmall{.staging_bytes = 1 << 20, .small_bytes = 0};

// `outside` of 8 operands lie where the ranks of a node do not reach.
Case on(std::vector<int> nodes, const MessageOptions& options = NodeLayout{}.options, unsigned outside = NodeLayout{}.outside) {
  const int ranks = static_cast<int>(nodes.size());
  return {launch_on_nodes({.nodes = nodes, .options = options, .outside = outside}), ranks, nodes};
}

std::string name(const ::testing::TestParamInfo<Case>& info) {
  std::string text = "nodes";
  for (const int node : info.param.nodes) text += std::to_string(node);
  return text;
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Messages, CommunicatorConformance,
                         ::testing::Values(on(equal_nodes(1, 1)), on(equal_nodes(2, 1)), on(equal_nodes(3, 1)),
                                           on(equal_nodes(4, 1)), on(equal_nodes(8, 1))),
                         name);

INSTANTIATE_TEST_SUITE_P(TinyMessages, CommunicatorConformance,
                         ::testing::Values(on(equal_nodes(2, 1), kTinyPieces), on(equal_nodes(3, 1), kTinyPieces)), name);

INSTANTIATE_TEST_SUITE_P(OneNode, CommunicatorConformance, ::testing::Values(on(equal_nodes(1, 3)), on(equal_nodes(1, 4))), name);

constexpr MessageOptions kUsual = NodeLayout{}.options;
INSTANTIATE_TEST_SUITE_P(OperandsWithinReach, CommunicatorConformance,
                         ::testing::Values(on(equal_nodes(1, 3), kUsual, 0), on(equal_nodes(2, 2), kUsual, 0),
                                         on({0, 0, 1, 1, 1}, kUsual, 0)),
                         name);
INSTANTIATE_TEST_SUITE_P(OperandsOutOfReach, CommunicatorConformance,
                         ::testing::Values(on(equal_nodes(1, 3), kUsual, 8), on(equal_nodes(2, 2), kUsual, 8),
                                         on({0, 0, 1, 1, 1}, kUsual, 8)),
                         name);

INSTANTIATE_TEST_SUITE_P(Nodes, CommunicatorConformance,
                         ::testing::Values(on(equal_nodes(2, 2)), on(equal_nodes(2, 4), kNothingIsSmall), on(equal_nodes(4, 2)),
                                         on({0, 1, 0, 1}), on({0, 0, 0, 1}), on({0, 1, 1, 2}),
                                         on({0, 0, 1, 1, 1}, kNothingIsSmall)),
                         name);

INSTANTIATE_TEST_SUITE_P(TinyPiecesOfNodes, CommunicatorConformance,
                         ::testing::Values(on(equal_nodes(2, 2), kTinyPieces), on({0, 0, 0, 1, 1}, kTinyPieces),
                                         on({0, 1, 1, 2}, kTinyPieces)),
                         name);

}  // namespace trident::conformance
