// The conformance suite on ranks that share no memory, with whole operands in one piece and with tiny ones.
#include "tests/parallel/communicator_conformance.h"
#include "tests/parallel/node_ranks.h"

namespace trident::conformance {
namespace {

Case apart(int ranks, const MessageOptions& options = {}) { return {launch_on_nodes({equal_nodes(ranks, 1), options}), ranks}; }

std::string name(const testing::TestParamInfo<Case>& info) { return std::to_string(info.param.ranks) + "ranks"; }

constexpr MessageOptions kTinyPieces{.chunk_bytes = 520, .staging_bytes = 1 << 20, .small_bytes = 64, .message_bytes = 3000};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Messages, CommunicatorConformance, testing::Values(apart(1), apart(2), apart(3), apart(4), apart(8)), name);

INSTANTIATE_TEST_SUITE_P(TinyMessages, CommunicatorConformance, testing::Values(apart(2, kTinyPieces), apart(3, kTinyPieces)), name);

}  // namespace trident::conformance
