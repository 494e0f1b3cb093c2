// What the step's statistics carry beside sums.
#include "optim/step_statistics.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/support/error_text.h"
#include "tests/support/tensor_rank.h"

namespace trident {
namespace {

using testing::run_tensor_ranks;
using testing::TensorRank;

struct Statistics {
  explicit Statistics(TensorRank& rank)
      : reducer(rank.context, plan), arena(plan, rank.device.allocate(plan.total_bytes(), "statistics")) {
    reducer.bind(arena);
  }
  ArenaPlan plan;
  StatisticsReducer reducer;
  Arena arena;
};

// Ranks that do not compare each call: one of five takes a maximum where the others add, of as many elements, and nothing fails.
TEST(StepStatistics, FindRanksThatCalledSomethingElse) {
  for (const bool differs : {false, true}) {
    const std::string error = error_of<CommunicationError>([&] {
      run_tensor_ranks(5, {}, [&](TensorRank& rank) {
        Statistics statistics(rank);
        rank.context.tensor().set_checks(CollectiveChecks::kOff);
        float x = 1;
        rank.context.tensor().all_reduce(rank.context.compute_stream(), {&x, DType::kF32, {1}},
                                         differs && rank.rank() == 3 ? ReduceOp::kMax : ReduceOp::kSum);
        statistics.reducer.reduce({}, {});
      });
    });
    if (differs) EXPECT_NE(error.find("called different collective operations since the run began"), std::string::npos) << error;
    else EXPECT_EQ(error, "no error");
  }
}

}  // namespace
}  // namespace trident
