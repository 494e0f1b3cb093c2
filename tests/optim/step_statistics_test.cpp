// Tests what the step's statistics carry beside sums.
#include "optim/step_statistics.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/shared_memory/thread_world.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

struct Statistics {
  Statistics(ParallelContext& context, Device& device)
      : reducer(context, plan), arena(plan, device.allocate(plan.total_bytes(), "statistics")) {
    reducer.bind(arena);
  }
  ArenaPlan plan;
  StatisticsReducer reducer;
  Arena arena;
};

// A group of a grid whose ranks must have called the same.
struct Group {
  const char* name;
  ParallelDegrees degrees;
  Communicator& (*of)(ParallelContext&);
  const char* said;  // the axis that the message names
};
void PrintTo(const Group& group, std::ostream* out) { *out << group.name; }

const SubAxis kHalves{Axis::kTensor, 2, 1};
Communicator& of_tensor(ParallelContext& c) { return c.tensor(); }
Communicator& of_halves(ParallelContext& c) { return c.partial(kHalves); }
Communicator& of_reductions(ParallelContext& c) { return c.data_reduce(); }
Communicator& of_gathers(ParallelContext& c) { return c.data_gather(); }

class StepStatisticsOf : public ::testing::TestWithParam<Group> {};

// Ranks that do not compare each call: one takes a maximum where the others add, of as many elements, and nothing fails. Ranks of
// other groups along the axis called what they should.
TEST_P(StepStatisticsOf, FindRanksThatCalledSomethingElse) {
  const Group& group = GetParam();
  const ProcessGrid grid(group.degrees);
  for (const int different : {-1, 0, grid.world_size() - 1}) {
    const std::string error = error_of<CommunicationError>([&] {
      ThreadWorld world(grid.world_size(), 60.0);
      run_thread_ranks(world, [&](int rank) {
        CpuDevice device(world.doorbell(rank), CpuDeviceOptions{});
        ParallelContext context(grid, device, world.communicator(rank, device.progress()), std::vector{kHalves},
                                CollectiveChecks::kOn);
        Statistics statistics(context, device);
        Communicator& called = group.of(context);
        called.set_checks(CollectiveChecks::kOff);
        float x = 1;
        called.all_reduce(context.compute_stream(), {&x, DType::kF32, {1}}, rank == different ? ReduceOp::kMax : ReduceOp::kSum);
        statistics.reducer.reduce({}, {});
      });
    });
    if (different < 0) EXPECT_EQ(error, "no error");
    else EXPECT_TRUE(contains(error, "called different collective operations") && error.starts_with(group.said)) << error;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Groups, StepStatisticsOf,
    ::testing::Values(Group{"Tensor", {.tensor = 4}, of_tensor, "tp: rank "},
                    Group{"TensorOfMany", {.tensor = 2, .data = 3, .pipeline = 2}, of_tensor, "tp: rank "},
                    Group{"HalvesOfTensor", {.tensor = 4}, of_halves, "tp: rank "},
                    Group{"Reductions", {.tensor = 2, .data = 5}, of_reductions, "dp: rank "},
                    Group{"Gathers", {.tensor = 2, .data = 3, .pipeline = 2}, of_gathers, "dp: rank "}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trident
