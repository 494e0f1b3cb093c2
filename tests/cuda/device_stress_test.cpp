// Many operations at once on communicators of device memory: several communicators and streams, every order of the simulated
// streams.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/cuda/device_ranks.h"
#include "tests/cuda/simulated/nccl.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/parallel/random_program.h"

namespace trident::conformance {
namespace {

DeviceRanks setup_of(DeviceTransport transport, int ranks) {
  DeviceRanks setup{.transport = transport, .ranks = ranks, .gpus = transport == DeviceTransport::kNccl ? ranks : 1};
  setup.options.staged = {.collective_bytes = 16384, .message_bytes = 8192};
  setup.options.nccl.traffic = {.max_ctas = 0, .messages = NcclTraffic::Messages::kAll};
  return setup;
}

void run(DeviceTransport transport, int ranks, unsigned seed, const std::function<void(const RankLauncher&)>& program) {
  using Order = simulated::StreamOrder;
  const std::array orders = {Order::kRandom, Order::kTargetFirst, Order::kOthersFirst};
  const SimulatedScope scope({.seed = seed, .stream_order = orders[seed % orders.size()], .devices = ranks});
  program([&](int size, const std::function<void(RankContext&)>& body) { run_on_devices(setup_of(transport, size), body); });
  EXPECT_EQ(simulated::nccl_complaints(), std::vector<std::string>{});
  EXPECT_EQ(simulated::nccl_communicators(), 0);
  simulated::reset_nccl();
}

class DeviceStress : public ::testing::TestWithParam<DeviceTransport> {};

TEST_P(DeviceStress, RandomPrograms) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const int ranks = seed == 2 ? 3 : 4;
    run(GetParam(), ranks, seed, [&](const RankLauncher& launch) { run_program(launch, ranks, seed); });
  }
}

TEST_P(DeviceStress, OperationsAllocateNothing) {
  run(GetParam(), 3, 1, [](const RankLauncher& launch) { launch(3, run_without_allocating); });
}

// More operations than a communicator keeps, none awaited: issuing waits for the oldest.
TEST_P(DeviceStress, ALongQueueOfOperations) {
  run(GetParam(), 2, 2, [](const RankLauncher& launch) {
    launch(2, [](RankContext& c) {
      Values x(DType::kF32, 15, [](auto) { return 1.0; }), y(DType::kF32, 30);
      for (int i = 0; i < 200; ++i) {
        c.world.all_gather(*c.queues[0], y.view(), x.view());
        c.world.reduce_scatter(*c.queues[0], x.view(), y.view(), ReduceOp::kMax);
      }
      c.queues[0]->synchronize();
      expect_values(x, [](auto) { return 1.0; }, "after 400 operations");
    });
  });
}

// A pipeline's traffic: sends and receives on streams of their own over one communicator, receives issued long before.
TEST_P(DeviceStress, SendsHoldUpNoReceives) {
  run(GetParam(), 3, 5, [](const RankLauncher& launch) {
    launch(3, [](RankContext& c) {
      constexpr int kMessages = 9;
      const int n = c.world.size(), rank = c.world.rank(), next = (rank + 1) % n, previous = (rank + n - 1) % n;
      std::vector<Values> out, in;
      for (int k = 0; k < kMessages; ++k) {
        in.emplace_back(DType::kF32, 2100);
        out.emplace_back(DType::kF32, 2100, [&](auto i) { return value(rank, i + k); });
      }
      // All receives are there before anything is sent.
      for (int k = 0; k < kMessages; ++k) c.world.recv(*c.queues[1], in[static_cast<std::size_t>(k)].view(), previous);
      for (int k = 0; k < kMessages; ++k) c.world.send(*c.queues[0], out[static_cast<std::size_t>(k)].view(), next);
      c.queues[1]->synchronize();
      c.queues[0]->synchronize();
      for (int k = 0; k < kMessages; ++k)
        expect_values(
            in[static_cast<std::size_t>(k)], [&](auto i) { return value(previous, i + k); }, "message " + std::to_string(k));
    });
  });
}

// A group's operations begin after what its stream was given before, and what comes later waits for them.
TEST_P(DeviceStress, GroupsStandInTheOrderOfTheirStream) {
  for (unsigned seed = 1; seed <= 6; ++seed)
    run(GetParam(), 3, seed, [](const RankLauncher& launch) {
      launch(3, [](RankContext& c) {
        const int n = c.world.size(), rank = c.world.rank(), next = (rank + 1) % n, previous = (rank + n - 1) % n;
        Values x(DType::kF32, 700, [&](auto i) { return value(rank, i); }), y(DType::kF32, 700);
        for (int round = 0; round < 3; ++round) {
          c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kMax);
          {
            const GroupScope group(c.world);
            c.world.send(*c.queues[0], x.view(), next);
            c.world.recv(*c.queues[0], y.view(), previous);
          }
          c.world.all_reduce(*c.queues[0], y.view(), ReduceOp::kSum);
          c.queues[0]->synchronize();
          expect_values(y, [&](auto i) { return n * reduced(ReduceOp::kMax, n, i); }, "after the group");
          for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, value(rank, i));
        }
      });
    });
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceStress,
                         ::testing::Values(DeviceTransport::kThread, DeviceTransport::kHostStaged, DeviceTransport::kNccl),
                         transport_name);

}  // namespace
}  // namespace trident::conformance
