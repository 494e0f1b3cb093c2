// The conformance suite on as many ranks as users have, over nodes whose ranks reach what lies in their node's segment and nothing
// else.
//
// What CTest runs by itself is a selection of operands at each size; `ctest -C Full` (scripts/test.sh --full) runs the cases named
// Full as well.
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/parallel/communicator_conformance.h"
#include "tests/parallel/node_ranks.h"

namespace trident::conformance {
namespace {

constexpr MessageOptions kTinyPieces{.chunk_bytes = 4096, .staging_bytes = 1 << 18, .small_bytes = 64, .message_bytes = 3000};

struct Selection {
  int every = 1, first = 0;
  std::int64_t most_elements = 1 << 20, most_of_all_ranks = std::int64_t{1} << 40;
  int most_repetitions = 100;
};

// `outside` of 8 operands lie where the ranks of a node do not reach.
Case on(std::initializer_list<int> ranks_of_nodes, unsigned outside, Selection selection,
        MessageOptions options = NodeLayout{}.options) {
  std::vector<int> nodes;
  for (int node = 0; const int count : ranks_of_nodes) nodes.insert(nodes.end(), static_cast<std::size_t>(count), node++);
  const int ranks = static_cast<int>(nodes.size());
  const NodeLayout layout{.nodes = nodes, .options = options, .timeout_seconds = 240, .outside = outside};
  return {.launch = launch_on_nodes(layout), .ranks = ranks, .nodes = nodes, .every = selection.every, .first = selection.first,
          .most_elements = selection.most_elements, .most_of_all_ranks = selection.most_of_all_ranks,
          .most_repetitions = selection.most_repetitions};
}

std::string name(const ::testing::TestParamInfo<Case>& info) {
  return std::to_string(info.param.ranks) + "RanksOn" + std::to_string(info.param.nodes.back() + 1) + "Nodes";
}

constexpr Selection kSome{.every = 5}, kFew{.every = 7, .most_elements = 2049}, kFewer{.every = 17, .most_elements = 2049};
// f32[7] on a queue, and where no operand holds a part of every rank 1,023 elements of two other types and streams; of 520 ranks
// the first alone.
constexpr Selection kOneOfEach{.every = 43, .first = 8, .most_elements = 1023, .most_of_all_ranks = 1 << 12, .most_repetitions = 5};
constexpr Selection kOne{.every = 1000, .first = 8, .most_elements = 1023, .most_of_all_ranks = 1 << 12, .most_repetitions = 3};
// Of 520 ranks an operand that holds a part of each has 0, 1 or 7 elements of a rank.
constexpr Selection kShort{.every = 5, .most_elements = 2049, .most_of_all_ranks = 1 << 12};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Mixed, CommunicatorConformance,
                         ::testing::Values(on({4, 4, 4}, 4, kSome), on({22, 22, 22}, 4, kFewer)),
                         name);
INSTANTIATE_TEST_SUITE_P(Large, CommunicatorConformance,
                         ::testing::Values(on({33, 33, 32, 32}, 4, kOneOfEach), on({86, 86}, 4, kOneOfEach),
                                         on({130, 130, 130, 130}, 4, kOne)),
                         name);
INSTANTIATE_TEST_SUITE_P(OutOfReach, CommunicatorConformance,
                         ::testing::Values(on({4, 4, 4}, 8, kSome)), name);

// Jobs of 130 and 172 ranks exchange control and tensors in every run, too: SizesOfJobs in node_sizes_test.cpp.
INSTANTIATE_TEST_SUITE_P(FullMixed, CommunicatorConformance,
                         ::testing::Values(on({4, 4, 4}, 4, {}), on({5, 7}, 4, {}), on({22, 22, 22}, 4, {.most_elements = 2049}),
                                         on({33, 33, 32, 32}, 4, {.every = 3, .most_elements = 2049}),
                                         on({86, 86}, 4, {.every = 7, .most_elements = 2049}),
                                         on({130, 130, 130, 130}, 4, kShort)),
                         name);
INSTANTIATE_TEST_SUITE_P(FullOutOfReach, CommunicatorConformance,
                         ::testing::Values(on({4, 4, 4}, 8, {}), on({22, 22, 22}, 8, {.every = 5}), on({33, 33, 32, 32}, 8, kFew)),
                         name);
INSTANTIATE_TEST_SUITE_P(FullTinyPieces, CommunicatorConformance,
                         ::testing::Values(on({4, 4, 4}, 4, {}, kTinyPieces), on({22, 22, 22}, 4, kFew, kTinyPieces)), name);

}  // namespace trident::conformance
