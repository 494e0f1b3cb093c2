// Tests what is special about NCCL: how groups come about, and what happens when the library fails.
#include "parallel/cuda/nccl_communicator.h"

#include <cstdint>
#include <cstdlib>

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "device/cuda/cuda_memory.h"
#include "parallel/cuda/nccl_arguments.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/simulated/nccl.h"
#include "tests/cuda/simulated_scope.h"

namespace trident::conformance {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class NcclFailure : public ::testing::Test {
 protected:
  ~NcclFailure() override {
    EXPECT_EQ(simulated::nccl_communicators(), 0);
    simulated::reset_nccl();
  }
  Failures run(DeviceRanks setup, const std::function<void(RankContext&)>& body) {
    setup.transport = DeviceTransport::kNccl;
    return run_failing(setup, body);
  }
  DeviceRanks two() const { return {.ranks = 2, .gpus = 2, .timeout_seconds = 30}; }

  SimulatedScope scope_{{.devices = 2}};
};

void all_reduce_once(RankContext& c) {
  Values x(DType::kF32, 3000, [&](auto i) { return value(c.world.rank(), i); });
  const TensorView view = x.view();
  c.world.barrier();  // on a GPU that two ranks share, memory is not allocated while one of them waits for the other
  c.world.all_reduce(*c.queues[0], view, ReduceOp::kSum);
  c.queues[0]->synchronize();
  c.world.barrier();
  expect_values(x, [&](auto i) { return reduced(ReduceOp::kSum, c.world.size(), i); }, "all_reduce");
}

TEST_F(NcclFailure, DifferentVersionsAreRefusedOnAllRanks) {
  simulated::configure_nccl({.version_of_last_device = 22703});
  const Failures failures = run(two(), all_reduce_once);
  const std::string expected = "world: rank 0 has NCCL 2.28.9 and rank 1 has NCCL 2.27.3; let all nodes load the same libnccl.so.2";
  EXPECT_EQ(failures.error, expected);
  for (const std::string& error : failures.per_rank) EXPECT_THAT(error, HasSubstr(expected));
}

class LaunchOrder {
 public:
  explicit LaunchOrder(const char* value) { setenv(kNcclLaunchOrder, value, /*replace=*/1); }
  ~LaunchOrder() { unsetenv(kNcclLaunchOrder); }
};

TEST_F(NcclFailure, DriversThatCannotKeepTheOrderOfLaunchesAreRefusedOnAllRanks) {
  const auto tried = [&](const char* value, int driver) {
    const LaunchOrder order(value);
    simulated::Settings settings = simulated::settings();
    settings.driver_version = driver;
    simulated::configure(settings);
    return run(two(), all_reduce_once);
  };
  EXPECT_EQ(tried("1", 12030).error, "");
  EXPECT_EQ(tried("0", 12020).error, "") << "in any order";
  const Failures failures = tried("1", 12020);
  for (const std::string& error : failures.per_rank)
    EXPECT_THAT(error, HasSubstr("world: the driver of rank 0 is of CUDA 12.2: before 12.3 NCCL keeps the order of launches"));
}

TEST_F(NcclFailure, TwoRanksOnOneGpuAreRefusedOnAllRanks) {
  DeviceRanks setup = two();
  setup.gpus = 1;
  const Failures failures = run(setup, all_reduce_once);
  for (const std::string& error : failures.per_rank)
    EXPECT_THAT(error, HasSubstr("world: ranks 0 and 1 are on one GPU, which NCCL refuses; "));
}

TEST_F(NcclFailure, TwoRanksOnOneGpuWhereTheLibraryAllowsThem) {
  DeviceRanks setup = two();
  setup.gpus = 1;
  setup.options.nccl.allow_shared_gpus = true;
  simulated::configure_nccl({.allow_shared_devices = true});
  EXPECT_EQ(run(setup, all_reduce_once).error, "");
}

TEST_F(NcclFailure, TwoRanksOnOneGpuWhereOnlyTheUserAllowsThem) {
  DeviceRanks setup = two();
  setup.gpus = 1;
  setup.options.nccl.allow_shared_gpus = true;
  const Failures failures = run(setup, all_reduce_once);
  EXPECT_THAT(
      failures.error,
      MatchesRegex("world: rank [01]: joining among ranks 0, 1 failed in NCCL: invalid usage.*; NCCL_DEBUG=WARN says more"));
}

TEST_F(NcclFailure, AnErrorThatTheLibraryReportsLater) {
  const Failures failures = run(two(), [](RankContext& c) {
    all_reduce_once(c);
    if (c.world.rank() == 1) simulated::fail_nccl_on(1, ncclRemoteError);
    all_reduce_once(c);
  });
  EXPECT_EQ(failures.error,
            "world: NCCL reports \"remote process exited or there was a network error (injected)\" while rank 1 waits for "
            "all_reduce #2 over world "
            "among ranks 0, 1; NCCL_DEBUG=WARN says more");
  EXPECT_EQ(failures.per_rank[0], failures.error);
}

TEST_F(NcclFailure, AnOperationThatNeverEnds) {
  DeviceRanks setup = two();
  setup.options.nccl.timeout_seconds = kMissingSeconds;
  const Failures failures = run(setup, [](RankContext& c) {
    all_reduce_once(c);
    if (c.world.rank() == 0) simulated::hang_nccl_on(0);
    all_reduce_once(c);
  });
  EXPECT_THAT(failures.error,
              MatchesRegex("rank [01] waited [0-9.]+ s for all_reduce #2 over world: all have called it, and NCCL is not done "
                           "among ranks 0, 1"));
}

TEST_F(NcclFailure, ACallThatFails) {
  const Failures failures = run(two(), [](RankContext& c) {
    all_reduce_once(c);
    if (c.world.rank() == 0) simulated::fail_next("ncclAllReduce", ncclSystemError);
    c.world.barrier();
    all_reduce_once(c);
  });
  EXPECT_THAT(
      failures.error,
      MatchesRegex("world: rank [01]: all_reduce among ranks 0, 1 failed in NCCL: unhandled system error; NCCL_DEBUG=WARN says "
                   "more"));
}

TEST_F(NcclFailure, AfterAFailureNothingIsIssued) {
  const Failures failures = run(two(), [](RankContext& c) {
    c.world.abort("stop requested");
    Values x(DType::kF32, 3);
    EXPECT_THROW(c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum), CommunicationError);
  });
  EXPECT_EQ(failures.error, "");
}

TEST_F(NcclFailure, JoiningThatFails) {
  simulated::fail_next("ncclCommInitRankConfig", ncclSystemError);
  EXPECT_THAT(run(two(), all_reduce_once).error, HasSubstr("joining among ranks 0, 1 failed in NCCL: unhandled system error"));
}

TEST_F(NcclFailure, AnIdThatCannotBeMade) {
  simulated::fail_next("ncclGetUniqueId", ncclSystemError);
  EXPECT_THAT(run(two(), all_reduce_once).error, HasSubstr("rank 0: making an id among ranks 0, 1 failed in NCCL"));
}

TEST_F(NcclFailure, AFirstOperationThatNeverEnds) {
  DeviceRanks setup = two();
  setup.options.nccl.timeout_seconds = 0.2;
  simulated::hang_nccl_on(1);
  EXPECT_THAT(run(setup, all_reduce_once).error,
              MatchesRegex("rank [01] waited [0-9.]+ s for the first operation of NCCL over world among ranks 0, 1"));
}

// A failure on one communicator ends what hangs on the others of the rank before anything is freed: freeing waits for the GPU.
TEST_F(NcclFailure, AllCommunicatorsOfTheRankEnd) {
  const Failures failures = run(two(), [](RankContext& c) {
    const auto other = c.world.split(all_ranks(c.world), "other");
    Values x(DType::kF32, 100);
    const Buffer freed_first = allocate_cuda(c.world.rank(), 4096, "freed while the error travels");
    if (c.world.rank() == 1) throw DataError("planted");
    other->all_reduce(*c.queues[0], x.view(), ReduceOp::kSum);  // hangs: its peer never comes
    c.world.all_reduce(*c.queues[1], x.view(), ReduceOp::kSum);
    c.queues[1]->synchronize();
  });
  EXPECT_EQ(failures.error, "planted");
  EXPECT_EQ(failures.per_rank[0], "rank 1 failed: planted");
}

// To abort a communicator waits for what is queued on its streams; what is queued behind another communicator's work ends with
// that.
class NcclQueuedBehind : public NcclFailure {
 protected:
  // Rank 0 calls, its peer never does; `behind` is on its stream after what `first` waits for.
  static void call_in_a_row(RankContext& c, Communicator& first, Communicator& behind, TensorView x, TensorView y) {
    first.all_reduce(*c.queues[1], x, ReduceOp::kSum);
    c.queues[0]->wait(c.queues[1]->record());
    behind.all_reduce(*c.queues[0], y, ReduceOp::kSum);
  }
  // On two ranks with two communicators: rank 1 does `peer`, rank 0 calls both in a row, in either order, and does `then`.
  Failures run_queued(bool older_first, const std::function<void()>& peer,
                            const std::function<void(RankContext&)>& then) {
    simulated::configure_nccl({.abort_seconds = 1});
    return run(two(), [&](RankContext& c) {
      const auto other = c.world.split(all_ranks(c.world), "other");
      Values x(DType::kF32, 100), y(DType::kF32, 100);
      if (c.world.rank() == 1) return peer();
      call_in_a_row(c, older_first ? c.world : *other, older_first ? *other : c.world, x.view(), y.view());
      then(c);
    });
  }
  ~NcclQueuedBehind() override { EXPECT_THAT(simulated::nccl_complaints(), ::testing::IsEmpty()); }
};

TEST_F(NcclQueuedBehind, AFailureOfThePeerEndsThemTogether) {
  for (const bool older_first : {true, false}) {
    const Failures failures =
        run_queued(older_first, [] { throw DataError("planted"); }, [](RankContext& c) { c.queues[0]->synchronize(); });
    EXPECT_EQ(failures.error, "planted");
  }
}

// Nobody has told the rank: its own error unwinds what it has.
TEST_F(NcclQueuedBehind, AFailureOfTheRankItselfEndsThemTogether) {
  for (const bool older_first : {true, false}) {
    const Failures failures = run_queued(older_first, [] {}, [](RankContext&) { throw DataError("planted"); });
    EXPECT_EQ(failures.per_rank[0], "planted");
  }
}

TEST_F(NcclQueuedBehind, AnAbortEndsThemTogether) {
  for (const bool older_first : {true, false}) {
    run_queued(older_first, [] {}, [](RankContext& c) {
      c.world.abort("a test ends it");
      EXPECT_EQ(simulated::nccl_communicators(), 2) << "those of rank 1, which waits in the end of its own";
    });
  }
}

TEST_F(NcclFailure, AFailedCallEndsAllCommunicatorsOfTheRank) {
  const Failures failures = run(two(), [](RankContext& c) {
    const auto other = c.world.split(all_ranks(c.world), "other"), third = c.world.split(all_ranks(c.world), "third");
    Values x(DType::kF32, 100);
    const TensorView view = x.view();
    const Buffer freed_first = allocate_cuda(c.world.rank(), 4096, "freed while the error travels");
    c.world.barrier();
    if (c.world.rank() == 0) {
      other->all_reduce(*c.queues[0], view, ReduceOp::kSum);  // hangs: its peer never comes
      simulated::fail_next("ncclAllReduce", ncclSystemError);
      c.world.all_reduce(*c.queues[1], view, ReduceOp::kSum);
    }
    for (;;) third->barrier();
  });
  EXPECT_THAT(failures.error, HasSubstr("world: rank 0: all_reduce among ranks 0, 1 failed in NCCL: unhandled system error"));
}

TEST_F(NcclFailure, ChecksCanBeSwitchedOff) {
  DeviceRanks setup = two();
  setup.options.nccl.timeout_seconds = kMissingSeconds;
  const Failures failures = run(setup, [](RankContext& c) {
    c.world.set_checks(CollectiveChecks::kOff);
    all_reduce_once(c);
    Values x(DType::kF32, 40);
    c.world.all_reduce(*c.queues[0], x.range(0, 20 + 20 * c.world.rank()), ReduceOp::kSum);
    c.queues[0]->synchronize();
  });
  EXPECT_THAT(failures.error, HasSubstr("all_reduce #2 over world: nothing was compared, and NCCL is not done among ranks 0, 1"));
}

TEST_F(NcclFailure, MemoryIsRegisteredForTheTimeOfTheCommunicator) {
  const Failures failures = run(two(), [](RankContext& c) {
    const NcclMemory memory = allocate_nccl(c.world.rank(), 4096, "registered");
    EXPECT_EQ(memory.ordinary_because, "");
    const TensorView view(memory.buffer.data(), DType::kF32, {1024}, MemoryKind::kDevice);
    const auto part = c.world.split(all_ranks(c.world), "part");
    EXPECT_EQ(part->register_memory(view), "");
    c.world.barrier();
    EXPECT_EQ(simulated::nccl_registrations(), 2);
    c.world.barrier();
    part->all_reduce(c.compute, view, ReduceOp::kSum);
    c.compute.synchronize();
  });
  EXPECT_EQ(failures.error, "");
  EXPECT_EQ(simulated::nccl_registrations(), 0);
  EXPECT_THAT(simulated::nccl_complaints(), ::testing::IsEmpty());
}

// Memory that one rank cannot register no rank registers: what NCCL would make of a mixture is undefined.
TEST_F(NcclFailure, MemoryThatOneRankCannotRegister) {
  DeviceRanks setup = two();
  setup.options.nccl.traffic.messages = NcclTraffic::Messages::kAll;
  const Failures failures = run(setup, [](RankContext& c) {
    const NcclMemory memory = allocate_nccl(c.world.rank(), 4096, "registered");
    const TensorView view(memory.buffer.data(), DType::kF32, {1024}, MemoryKind::kDevice);
    const std::int64_t beyond = c.world.rank() == 1 ? 4096 : 0;
    const std::string why = c.world.register_memory({view.data() + beyond, DType::kF32, {4}, MemoryKind::kDevice});
    EXPECT_EQ(why, beyond > 0 ? "world: NCCL does not register the memory of rank 1: invalid argument" : "");
    c.world.barrier();
    EXPECT_EQ(simulated::nccl_registrations(), 0);
    c.world.barrier();
    c.world.all_reduce(c.compute, view.range(0, 4), ReduceOp::kSum);
    c.compute.synchronize();
  });
  EXPECT_EQ(failures.error, "");
  EXPECT_THAT(simulated::nccl_complaints(), ::testing::IsEmpty());
}

TEST_F(NcclFailure, MemoryThatTheLibraryPassesOver) {
  simulated::configure_nccl({.passes_registration_over = true});
  const Failures failures = run(two(), [](RankContext& c) {
    const NcclMemory memory = allocate_nccl(c.world.rank(), 4096, "registered");
    EXPECT_EQ(c.world.register_memory({memory.buffer.data(), DType::kU8, {4096}, MemoryKind::kDevice}),
              c.world.rank() > 0
                  ? ""
                  : "world: NCCL does not register the memory of rank 0: passed over; NCCL_LOCAL_REGISTER=0 does that, and so does "
                    "NCCL_P2P_USE_CUDA_MEMCPY");
  });
  EXPECT_EQ(failures.error, "");
}

// One that is not given back where others are not registered would be a mixture.
TEST_F(NcclFailure, MemoryThatCannotBeGivenBack) {
  const Failures failures = run(two(), [](RankContext& c) {
    const NcclMemory memory = allocate_nccl(c.world.rank(), 4096, "registered");
    if (c.world.rank() == 0) simulated::fail_next("ncclCommDeregister", ncclSystemError);
    const std::int64_t beyond = c.world.rank() == 1 ? 4096 : 0;
    c.world.register_memory({memory.buffer.data() + beyond, DType::kU8, {64}, MemoryKind::kDevice});
    c.world.barrier();
  });
  EXPECT_EQ(failures.error,
            "world: rank 0: giving back registered memory among ranks 0, 1 failed in NCCL: unhandled system error; NCCL_DEBUG=WARN "
            "says more");
}

// At the end the communicator takes it with itself.
TEST_F(NcclFailure, MemoryThatIsNotGivenBackAtTheEnd) {
  const Failures failures = run(two(), [](RankContext& c) {
    const NcclMemory memory = allocate_nccl(c.world.rank(), 4096, "registered");
    {
      const auto part = c.world.split(all_ranks(c.world), "part");
      EXPECT_EQ(part->register_memory({memory.buffer.data(), DType::kU8, {64}, MemoryKind::kDevice}), "");
      if (c.world.rank() == 0) simulated::fail_next("ncclCommDeregister", ncclSystemError);
    }
    c.world.barrier();
    EXPECT_EQ(simulated::nccl_registrations(), 0);
    if (c.world.rank() == 0) simulated::fail_next("ncclMemFree", ncclSystemError);
  });
  EXPECT_EQ(failures.error, "");
}

TEST_F(NcclFailure, AGroupOfOneCallsTheLibraryIfItIsTo) {
  DeviceRanks setup{.ranks = 1, .gpus = 1};
  EXPECT_EQ(run(setup, all_reduce_once).error, "");
  EXPECT_THAT(simulated::nccl_joined(), ::testing::IsEmpty());
  setup.options.nccl.alone = NcclOptions::Alone::kJoins;
  EXPECT_EQ(run(setup, all_reduce_once).error, "");
  EXPECT_EQ(simulated::nccl_joined().size(), 1u);
  const Failures failures = run(setup, [](RankContext& c) {
    simulated::fail_next("ncclAllReduce", ncclSystemError);
    all_reduce_once(c);
  });
  EXPECT_THAT(failures.error, HasSubstr("rank 0: all_reduce among ranks 0 failed in NCCL"));
  EXPECT_EQ(run(setup, [](RankContext& c) {
              Values x(DType::kF32, 64);
              c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kSum);
              c.world.abort("a test ends it");
              EXPECT_EQ(simulated::nccl_communicators(), 0);
              EXPECT_THROW(c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kSum), CommunicationError);
            }).error, "");
}

TEST_F(NcclFailure, LimitsOnBlocksReachTheLibrary) {
  DeviceRanks setup = two();
  setup.options.nccl.traffic = {.max_ctas = 6, .messages = NcclTraffic::Messages::kAll};
  EXPECT_EQ(run(setup, all_reduce_once).error, "");
  const auto joined = simulated::nccl_joined();
  EXPECT_EQ(joined.size(), 2u * 3) << "the group and a path in each direction, on two ranks";
  for (const simulated::NcclJoined& one : joined) EXPECT_EQ(one.max_ctas, 6) << one.name;
}

TEST_F(NcclFailure, OrdinaryMemoryWhereTheLibraryHasNone) {
  simulated::fail_next("ncclMemAlloc", ncclSystemError);
  const NcclMemory made = allocate_nccl(0, 4096, "buffer");
  const Buffer& memory = made.buffer;
  EXPECT_EQ(made.ordinary_because, "unhandled system error");
  EXPECT_EQ(memory.num_bytes(), 4096);
  EXPECT_EQ(memory.where(), MemoryKind::kDevice);
  std::vector<char> read(4096, 1);
  EXPECT_EQ(cudaMemcpy(read.data(), memory.data(), read.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(read, std::vector<char>(4096, 0));
}

}  // namespace
}  // namespace trident::conformance
