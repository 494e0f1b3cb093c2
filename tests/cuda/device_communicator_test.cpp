// The parts of device communicators that are values, and what is special about one transport.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "core/check.h"
#include "parallel/cuda/call_record.h"
#include "parallel/cuda/host_staged_communicator.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/simulated/nccl.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/parallel/random_program.h"
#include "tests/support/error_text.h"

namespace trident::conformance {
namespace {

TEST(ChooseTransport, ByTheGpusThatProcessesHave) {
  const auto choose = [](std::size_t processes, std::size_t gpus) {
    const TransportChoice choice = choose_transport(processes, gpus);
    return std::pair(choice.transport, choice.why);
  };
  EXPECT_EQ(choose(2, 2), std::pair(DeviceTransport::kNccl, std::string("each of the 2 processes has a GPU of its own")));
  EXPECT_EQ(choose(3, 2), std::pair(DeviceTransport::kHostStaged, std::string("3 processes share 2 GPUs")));
  EXPECT_EQ(choose(2, 1), std::pair(DeviceTransport::kHostStaged, std::string("2 processes share 1 GPU")));
}

TEST(CallRecord, TravelsAsWords) {
  float data = 0;
  const ConstTensorView view(&data, DType::kBF16, {5, 7});
  const std::vector<int> names = {4, 6};
  const CollectiveCall call{.operation = CommOperation::kBroadcast, .in = view, .root = 1};
  const CallRecord record{fingerprint_of(call, names), 0xfedcba9876543210u};
  const CallRecord read = record_of_words(record.words());
  EXPECT_EQ(to_string(read.fingerprint), "broadcast bf16[35] from rank 6");
  EXPECT_EQ(read.fingerprint, record.fingerprint);
  EXPECT_EQ(read.operand, record.operand);
}

TEST(CallRecord, DisagreementsAreFoundWhereverTheyAre) {
  const std::vector<int> names = {3, 5, 9};
  const CommFingerprint sum{CommOperation::kAllReduce, ReduceOp::kSum, DType::kF32, -1, 10};
  CommFingerprint max = sum;
  max.reduce = ReduceOp::kMax;
  const auto said = [&](std::vector<CommFingerprint> fingerprints) {
    std::vector<std::int64_t> words;
    for (std::size_t r = 0; r < fingerprints.size(); ++r) {
      const auto one = CallRecord{fingerprints[r], r}.words();  // operands differ and are not compared
      words.insert(words.end(), one.begin(), one.end());
    }
    return first_disagreement("tp", 12, names, words).value_or("");
  };
  EXPECT_EQ(said({sum, sum, sum}), "");
  EXPECT_EQ(said({sum, sum, max}),
            "tp: rank 9 called all_reduce(max) f32[10] as operation 12 while rank 3 called all_reduce f32[10]");
  EXPECT_EQ(said({max, sum, sum}),
            "tp: rank 5 called all_reduce f32[10] as operation 12 while rank 3 called all_reduce(max) f32[10]");
}

CollectiveCall call_of(CommOperation operation, std::int64_t count, DType dtype = DType::kF32) {
  static std::byte memory;  // never touched
  return {.operation = operation, .out = {&memory, dtype, {count}}, .in = {&memory, dtype, {count}}};
}

TEST(StagedCut, ChunksCoverEverySliceOnceAndFitTheSlot) {
  for (const CommOperation operation : {CommOperation::kAllReduce, CommOperation::kReduceScatter, CommOperation::kAllGather,
                                        CommOperation::kBroadcast, CommOperation::kAllToAll, CommOperation::kSend})
    for (const DType dtype : {DType::kF32, DType::kU8, DType::kF64})
      for (const int ranks : {2, 3, 8})
        for (const std::int64_t slot : {256, 1000, 65536})
          for (const std::int64_t slice : {0, 1, 63, 64, 1000, 16384}) {
            const bool sliced = operation == CommOperation::kReduceScatter || operation == CommOperation::kAllToAll;
            const StagedCut cut = cut_for_staging(call_of(operation, sliced ? slice * ranks : slice, dtype), ranks, slot);
            EXPECT_EQ(cut.slice, slice);
            std::int64_t covered = 0;
            for (std::int64_t c = 0; c < cut.chunks; ++c) {
              EXPECT_EQ(cut.begin(c), covered);
              EXPECT_GT(cut.count(c), 0);
              EXPECT_LE(cut.slices * cut.count(c) * size_of(dtype) * (operation == CommOperation::kAllToAll ? 2 : 1), slot);
              covered += cut.count(c);
            }
            EXPECT_EQ(covered, slice);
          }
}

TEST(StagedCut, WhatFitsGoesInOnePiece) {
  EXPECT_EQ(cut_for_staging(call_of(CommOperation::kAllReduce, 1024), 8, 4096).chunks, 1);
  EXPECT_EQ(cut_for_staging(call_of(CommOperation::kAllReduce, 1025), 8, 4096).chunks, 2);
  EXPECT_THROW(cut_for_staging(call_of(CommOperation::kReduceScatter, 64), 64, 128), InternalError);
}

// Shared memory of the host's, as processes use it: page-locked for the time of its use.
TEST(HostStaged, LocksTheMemoryItIsGiven) {
  const SimulatedScope scope;
  ThreadWorld world(2, 30);
  run_thread_ranks(world, [&](int rank) {
    Progress progress(world.doorbell(rank));
    CudaStream stream(0, "compute", CudaStream::Mode::kImmediate, progress, 0);
    DeviceValues values(0);
    std::vector<std::string> taken;
    const HostAllocator staging = [&](std::int64_t bytes, const std::string& name) {
      taken.push_back(name);
      return allocate_host(bytes, name);
    };
    DeviceCommunicatorOptions options;
    options.staged = {.collective_bytes = 8192, .message_bytes = 4096};
    const auto communicator = make_device_communicator(DeviceTransport::kHostStaged, world.communicator(rank, progress),
                                                       {0, &progress, staging}, options);
    Values x(DType::kF32, 3000, [&](auto i) { return value(rank, i); });
    communicator->all_reduce(stream, x.view(), ReduceOp::kSum);
    expect_values(x, [](auto i) { return reduced(ReduceOp::kSum, 2, i); }, "all_reduce");
    if (rank == 0) communicator->send(stream, x.view(), 1);
    else communicator->recv(stream, x.view(), 0);
    EXPECT_THAT(taken, ::testing::ElementsAre("collectives over world",
                                            rank == 0 ? "messages to rank 1 over world" : "messages from rank 0 over world"));
  });
}

TEST(HostStaged, MemoryThatCannotBeLockedIsNamed) {
  const SimulatedScope scope;
  simulated::fail_next("cudaHostRegister", cudaErrorMemoryAllocation);
  ThreadWorld world(1, 30);
  const std::string error = error_of<Error>([&] {
    run_thread_ranks(world, [&](int rank) {
      Progress progress(world.doorbell(rank));
      CudaStream stream(0, "compute", CudaStream::Mode::kImmediate, progress, 0);
      const HostAllocator staging = [](std::int64_t bytes, const std::string& name) { return allocate_host(bytes, name); };
      const auto communicator =
          make_device_communicator(DeviceTransport::kHostStaged, world.communicator(rank, progress), {0, &progress, staging});
      communicator->barrier();
    });
  });
  EXPECT_THAT(error, ::testing::HasSubstr("of shared memory for collectives over world"));
}

TEST(DeviceThreads, GpusThatDoNotReachEachOtherAreNamed) {
  const SimulatedScope scope({.devices = 2});
  simulated::fail_next("cudaDeviceCanAccessPeer", 1);
  const Failures failures = run_failing({.transport = DeviceTransport::kThread, .ranks = 2, .gpus = 2}, [](RankContext&) {});
  EXPECT_THAT(failures.error,
              ::testing::MatchesRegex("world: device [01] of rank [01] cannot reach the memory of device [01]; start the ranks as "
                                    "processes, or put them on one GPU"));
  for (const std::string& error : failures.per_rank) EXPECT_THAT(error, ::testing::HasSubstr(failures.error));
}

TEST(DeviceThreads, MoreRanksThanAKernelAddsUpAreRefused) {
  const SimulatedScope scope;
  ThreadWorld world(65, 60);
  const std::string error = error_of<ConfigError>([&] {
    run_thread_ranks(world, [&](int rank) {
      Progress progress(world.doorbell(rank));
      make_device_communicator(DeviceTransport::kThread, world.communicator(rank, progress), {0, &progress, {}});
    });
  });
  expect_parts(error, {"world: 65 ranks", "at most 64", "as processes"});
}

// Many operations at once on communicators of device memory: several communicators and streams, every order of the simulated
// streams.

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

TEST_P(DeviceStress, RandomProgramsHaveTheirResults) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const int ranks = seed == 2 ? 3 : 4;
    run(GetParam(), ranks, seed, [&](const RankLauncher& launch) { run_program(launch, ranks, seed); });
  }
}

TEST_P(DeviceStress, OperationsAllocateNothing) {
  run(GetParam(), 3, 1, [](const RankLauncher& launch) { launch(3, run_without_allocating); });
}

// More operations than a communicator keeps, none awaited: issuing waits for the oldest.
TEST_P(DeviceStress, ALongQueueOfOperationsIsWorkedOff) {
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
