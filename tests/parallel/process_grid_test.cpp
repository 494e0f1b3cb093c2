#include "parallel/grid/process_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/check.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

std::set<std::vector<int>> all_groups(const ProcessGrid& grid, const SubAxis& axis) {
  std::set<std::vector<int>> groups;
  for (int r = 0; r < grid.world_size(); ++r) groups.insert(grid.group(r, axis));
  return groups;
}

using Groups = std::set<std::vector<int>>;

// Megatron's worked example: 16 ranks, T = 2, P = 4, C = 1, D = 2 (megatron/core/parallel_state.py).
TEST(ProcessGrid, MegatronSixteenRanks) {
  const ProcessGrid grid({.tensor = 2, .context = 1, .data = 2, .pipeline = 4});
  EXPECT_EQ(all_groups(grid, grid.whole(Axis::kTensor)),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(all_groups(grid, grid.whole(Axis::kData)),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(all_groups(grid, grid.whole(Axis::kPipeline)),
            (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
}

// Megatron's alternative mapping (--use-tp-pp-dp-mapping).
TEST(ProcessGrid, MegatronTensorPipelineDataOrder) {
  const ProcessGrid grid({.tensor = 2, .context = 1, .data = 2, .pipeline = 4}, parse_axis_order("tp-cp-pp-dp").value());
  EXPECT_EQ(grid.group(0, grid.whole(Axis::kPipeline)), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(grid.group(3, grid.whole(Axis::kData)), (std::vector<int>{3, 11}));
}

TEST(ProcessGrid, DefaultOrderIsTheDocumentedFormula) {
  const ProcessGrid grid({.tensor = 2, .context = 3, .data = 2, .pipeline = 2});
  for (int pp = 0; pp < 2; ++pp)
    for (int dp = 0; dp < 2; ++dp)
      for (int cp = 0; cp < 3; ++cp)
        for (int tp = 0; tp < 2; ++tp) {
          const GridCoordinates c{tp, cp, dp, pp};
          EXPECT_EQ(grid.rank(c), tp + 2 * (cp + 3 * (dp + 2 * pp)));
          EXPECT_EQ(grid.coordinates(grid.rank(c)), c);
        }
}

TEST(ProcessGrid, EveryOrderIsABijectionAndGroupsPartitionTheWorld) {
  std::vector<std::string> axes = {"cp", "dp", "pp", "tp"};
  do {
    const std::string order = axes[0] + "-" + axes[1] + "-" + axes[2] + "-" + axes[3];
    const ProcessGrid grid({.tensor = 4, .context = 2, .data = 3, .pipeline = 2}, parse_axis_order(order).value());
    for (int r = 0; r < grid.world_size(); ++r) {
      ASSERT_EQ(grid.rank(grid.coordinates(r)), r) << order;
      for (const SubAxis axis : {grid.whole(Axis::kTensor), grid.whole(Axis::kContext), grid.whole(Axis::kData),
                                 grid.whole(Axis::kPipeline), SubAxis{Axis::kTensor, 2, 2}, SubAxis{Axis::kTensor, 2, 1}}) {
        const std::vector<int> group = grid.group(r, axis);
        ASSERT_EQ(group.size(), static_cast<std::size_t>(axis.size));
        ASSERT_EQ(group[static_cast<std::size_t>(grid.coordinate(r, axis.axis) / axis.stride % axis.size)], r);
        for (const int peer : group) ASSERT_EQ(grid.group(peer, axis), group) << order;
      }
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
}

// tp = 4 over 2 key/value heads: ranks {0,1} and {2,3} hold the same head; {0,2} and {1,3} hold different ones.
TEST(ProcessGrid, SubAxesFactorAnAxis) {
  const ProcessGrid grid({.tensor = 4, .context = 1, .data = 2, .pipeline = 1});
  EXPECT_EQ(all_groups(grid, {Axis::kTensor, 2, 1}), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(all_groups(grid, {Axis::kTensor, 2, 2}), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(grid.name({Axis::kTensor, 2, 2}), "tp[2:2]");
  EXPECT_EQ(grid.name({Axis::kTensor, 4, 1}), "tp");
  EXPECT_THROW(grid.group(0, {Axis::kTensor, 3, 1}), InternalError);
}

TEST(ProcessGrid, RefusesBadDegreesByKey) {
  expect_parts(error_of<ConfigError>([] { ProcessGrid({.tensor = 0}); }), {"parallel.tensor = 0"});
  expect_parts(error_of<ConfigError>([] { ProcessGrid({.context = -1}); }), {"parallel.context = -1"});
  expect_parts(error_of<ConfigError>([] { ProcessGrid({.data = 0}); }), {"parallel.data = 0"});
  expect_parts(error_of<ConfigError>([] { ProcessGrid({.pipeline = 0}); }), {"parallel.pipeline = 0"});
  expect_parts(error_of<ConfigError>([] { ProcessGrid({.tensor = 1 << 20, .data = 1 << 20}); }), {"more than"});
}

TEST(AxisOrder, IsReadAndWritten) {
  EXPECT_EQ(parse_axis_order("tp-cp-dp-pp"), kMegatronOrder);
  EXPECT_EQ(parse_axis_order("pp-dp-cp-tp"), (AxisOrder{Axis::kPipeline, Axis::kData, Axis::kContext, Axis::kTensor}));
  for (const char* text : {"tp-cp-dp-pp", "tp-cp-pp-dp", "pp-dp-cp-tp"}) EXPECT_EQ(to_string(parse_axis_order(text).value()), text);

  for (const char* order : {"", "tp", "tp-cp-dp", "tp-cp-dp-dp", "tp-cp-dp-pp-", "tp-cp-dp-pp-ep", "tp_cp_dp_pp", "tp-cp-ep-pp"})
    EXPECT_EQ(parse_axis_order(order), std::nullopt) << order;
}

TEST(CheckWorldSize, NamesWhatWouldFit) {
  EXPECT_NO_THROW(check_world_size({.tensor = 4, .context = 1, .data = 2, .pipeline = 4}, 32));
  const std::string data =
      error_of<ConfigError>([] { check_world_size({.tensor = 4, .context = 1, .data = 2, .pipeline = 4}, 64); });
  EXPECT_EQ(data, "parallel = data 2 x pipeline 4 x tensor 4 x context 1: needs 32 ranks but 64 are running; start 32 ranks or set "
                  "parallel.data to 4");
  const std::string model =
      error_of<ConfigError>([] { check_world_size({.tensor = 4, .context = 1, .data = 2, .pipeline = 4}, 24); });
  expect_parts(model, {"(now 16) dividing 24"});
  expect_parts(error_of<ConfigError>([] { check_world_size({.data = 0}, 4); }), {"parallel.data = 0"});
}

}  // namespace
}  // namespace trident
