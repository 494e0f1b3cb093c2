// Ranks with devices that disagree, stay away, give up or throw, on every transport: every rank ends, and the message says who and
// what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <algorithm>

#include "core/check.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/simulated/nccl.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/support/error_text.h"

namespace trident::conformance {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class DeviceFailure : public ::testing::TestWithParam<DeviceTransport> {
 protected:
  Failures run(int ranks, double timeout, const std::function<void(RankContext&)>& body) {
    DeviceRanks setup{.transport = GetParam(), .ranks = ranks, .gpus = is_nccl() ? ranks : 1, .timeout_seconds = timeout};
    setup.options.nccl.traffic = {.max_ctas = 0, .messages = NcclTraffic::Messages::kAll};
    setup.options.nccl.timeout_seconds = 0.75 * timeout;
    setup.options.staged = {.collective_bytes = 65536, .message_bytes = 65536};
    const SimulatedScope scope({.devices = ranks});
    const Failures failures = run_failing(setup, body);
    simulated::recover();
    simulated::reset_nccl();
    return failures;
  }
  bool is_nccl() const { return GetParam() == DeviceTransport::kNccl; }
};

TEST_P(DeviceFailure, ADisagreementNamesBothRanksAndBothOperations) {
  const Failures failures = run(2, 30, [](RankContext& c) {
    const auto tp = c.world.split(all_ranks(c.world), "tp");
    Values x(DType::kF32, 1024);
    tp->all_reduce(c.compute, x.view(), ReduceOp::kSum);
    if (tp->rank() == 1) tp->all_reduce(c.compute, x.view(), ReduceOp::kSum);
    else tp->all_gather(c.compute, x.view(), x.range(0, 512));
    c.compute.synchronize();
    for (;;) c.world.barrier();
  });
  const std::string expected = "tp: rank 1 called all_reduce f32[1024] as operation 2 while rank 0 called all_gather f32[512]";
  EXPECT_EQ(failures.error, expected);
  for (const std::string& error : failures.per_rank) EXPECT_EQ(error, expected);
}

TEST_P(DeviceFailure, CountDTypeReduceOpAndRootAreCompared) {
  struct Other {
    const char* words;
    std::function<void(RankContext&, Values&)> call;
  };
  const std::vector<Other> others = {
      {"all_reduce f32[2000]",
       [](RankContext& c, Values& x) { c.world.all_reduce(*c.queues[0], x.range(0, 2000), ReduceOp::kSum); }},
      {"all_reduce(max) f32[40000]", [](RankContext& c, Values& x) { c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kMax); }},
      {"broadcast f32[40000] from rank 2", [](RankContext& c, Values& x) { c.world.broadcast(*c.queues[0], x.view(), 2); }},
  };
  for (const Other& other : others) {
    const Failures failures = run(3, 30, [&](RankContext& c) {
      Values x(DType::kF32, 40000);
      if (c.world.rank() == 2) other.call(c, x);
      else c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kSum);
      c.queues[0]->synchronize();
      for (;;) c.world.barrier();
    });
    EXPECT_EQ(failures.error,
              fmt::format("world: rank 2 called {} as operation 1 while rank 0 called all_reduce f32[40000]", other.words));
    for (const std::string& error : failures.per_rank) EXPECT_EQ(error, failures.error);
  }
}

TEST_P(DeviceFailure, MessagesMustAgreeInCountAndType) {
  const Failures failures = run(2, 30, [](RankContext& c) {
    Values x(DType::kF32, 20000);
    if (c.world.rank() == 0) c.world.send(*c.queues[0], x.range(0, 10000), 1);
    else c.world.recv(*c.queues[0], x.view(), 0);
    c.queues[0]->synchronize();
    for (;;) c.world.barrier();
  });
  EXPECT_EQ(failures.error,
            "world: rank 1 called recv f32[20000] from rank 0 as message 1 while rank 0 called send f32[10000] to rank 1");
}

TEST_P(DeviceFailure, TheWatchdogNamesOperationAndWhoIsMissing) {
  const Failures failures = run(3, 0.4, [](RankContext& c) {
    const auto tp = c.world.split(backwards(c.world), "tp");  // group order 2, 1, 0: messages speak of global ranks
    Values x(DType::kF32, 8);
    if (c.world.rank() == 1) return;
    tp->all_reduce(*c.queues[0], x.view(), ReduceOp::kSum);
    c.queues[0]->synchronize();
  });
  EXPECT_THAT(failures.error,
              MatchesRegex("rank [02] waited 0\\.[0-9]+ s (in|for) all_reduce #[12] over tp.*rank 1 has not arrived"));
}

TEST_P(DeviceFailure, TheWatchdogSeesMessages) {
  const Failures failures = run(2, 0.4, [](RankContext& c) {
    Values x(DType::kF32, 8);
    if (c.world.rank() == 1) return;
    c.world.recv(*c.queues[0], x.view(), 1);
    c.queues[0]->synchronize();
  });
  EXPECT_THAT(failures.error, HasSubstr("recv #1 from rank 1 over world"));
  EXPECT_THAT(failures.error, HasSubstr("rank 1 has not sent"));
}

TEST_P(DeviceFailure, AThrowingRankIsNamedToItsPeersAndRethrown) {
  const Failures failures = run(3, 30, [](RankContext& c) {
    Values x(DType::kF32, 3000);
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
    c.compute.synchronize();
    if (c.world.rank() == 2) throw DataError("corpus.bin: too short");
    c.world.all_reduce(*c.queues[1], x.view(), ReduceOp::kSum);
    c.queues[1]->synchronize();
  });
  EXPECT_EQ(failures.error, "corpus.bin: too short");
  for (const std::size_t rank : {0u, 1u}) EXPECT_EQ(failures.per_rank[rank], "rank 2 failed: corpus.bin: too short");
}

TEST_P(DeviceFailure, AbortReachesEveryGroup) {
  const Failures failures = run(4, 30, [](RankContext& c) {
    const auto pair = c.world.split(neighbours(c.world, 2), "pair");
    Values x(DType::kF32, 30);
    if (c.world.rank() == 0) pair->abort("stop requested");
    else if (c.world.rank() > 1) pair->barrier();
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
    c.compute.synchronize();
    c.world.barrier();
  });
  EXPECT_EQ(failures.error, "stop requested");
}

TEST_P(DeviceFailure, ARankThatThrowsAtARandomPointEndsAll) {
  for (int seed = 0; seed < 6; ++seed) {
    const int ranks = 2 + seed % 2, thrower = seed * 7 % ranks, at = seed * 13 % 9;
    const Failures failures = run(ranks, 30, [&](RankContext& c) {
      for (int i = 0; i < 10; ++i) {
        Values x(DType::kF32, i % 4 == 0 ? 6000 : 20), y(DType::kF32, x.count() * ranks);
        if (c.world.rank() == thrower && i == at) throw std::runtime_error("planted");
        if (i % 3 == 0) c.world.all_gather(c.compute, y.view(), x.view());
        else c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
        c.compute.synchronize();
        if (i % 5 == 0) c.world.barrier();
      }
    });
    EXPECT_EQ(failures.error, "planted");
    for (int r = 0; r < ranks; ++r)
      EXPECT_EQ(failures.per_rank[static_cast<std::size_t>(r)],
                r == thrower ? "planted" : fmt::format("rank {} failed: planted", thrower));
  }
}

TEST_P(DeviceFailure, AGroupLeftByAnExceptionIssuesNothing) {
  const Failures failures = run(2, 30, [](RankContext& c) {
    Values x(DType::kF32, 4, [](auto) { return 1.0; });
    try {
      const GroupScope group(c.world);
      c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
      throw ConfigError("no");
    } catch (const ConfigError&) {
    }
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
    c.compute.synchronize();
    EXPECT_EQ(x.at(0), 2.0);
  });
  EXPECT_EQ(failures.error, "");
}

TEST_P(DeviceFailure, MisuseIsRefused) {
  const Failures failures = run(2, 30, [](RankContext& c) {
    Values x(DType::kF32, 8), bytes(DType::kU8, 8);
    std::vector<float> host(8);
    Doorbell doorbell;
    Progress progress(doorbell);
    CpuStream cpu("cpu", CpuStream::Mode::kQueue, progress);
    const TensorView v = x.view();
    EXPECT_THROW(c.world.all_reduce(c.compute, bytes.view(), ReduceOp::kSum), InternalError);
    EXPECT_THROW(c.world.all_reduce(c.compute, {host.data(), DType::kF32, {8}}, ReduceOp::kSum), InternalError);
    EXPECT_THROW(c.world.all_reduce(cpu, v, ReduceOp::kSum), InternalError);
    EXPECT_THROW(c.world.broadcast(c.compute, v, 2), InternalError);
    EXPECT_THROW(c.world.send(c.compute, v, c.world.rank()), InternalError);
    EXPECT_THROW(c.world.all_to_all(c.compute, v, v), InternalError);
    EXPECT_THROW(c.world.group_end(), InternalError);
    c.world.group_begin();
    EXPECT_THROW(c.world.barrier(), InternalError);
    EXPECT_THROW(c.world.split(all_ranks(c.world), "part"), InternalError);
    c.world.all_reduce(c.compute, v, ReduceOp::kSum);
    EXPECT_THROW(c.world.all_reduce(*c.queues[0], v, ReduceOp::kSum), InternalError);
    for (std::size_t i = 1; i < CpuStream::kCapacity - 1; ++i) c.world.all_reduce(c.compute, v, ReduceOp::kSum);
    EXPECT_THROW(c.world.all_reduce(c.compute, v, ReduceOp::kSum), InternalError);
    c.world.group_cancel();
  });
  EXPECT_EQ(failures.error, "");
}

// NCCL does its own copies (nccl_communicator_test.cpp), and its communicators wait for their operations when they end.
class LaneFailure : public DeviceFailure {};

// The GPU itself fails under one rank: that rank says how, the others that it did.
TEST_P(LaneFailure, AFailingGpuEndsAllRanks) {
  const Failures failures = run(2, 30, [](RankContext& c) {
    Values x(DType::kF32, 5000), y(DType::kF32, 10000);
    const TensorView in = x.view(), out = y.view();
    c.world.barrier();
    if (c.world.rank() == 0) simulated::fail_next("cudaMemcpyAsync", cudaErrorInvalidValue);
    c.world.barrier();
    c.world.all_gather(c.compute, out, in);
    for (;;) c.world.barrier();
  });
  const auto cause = std::count_if(failures.per_rank.begin(), failures.per_rank.end(), [](const std::string& error) {
    return contains(error, "cudaErrorInvalidValue") && !contains(error, "failed:");
  });
  EXPECT_EQ(cause, 1) << failures.per_rank[0] << "\n" << failures.per_rank[1];
  EXPECT_THAT(failures.error, HasSubstr("cop"));
}

// Left without a wait; the communicator goes while its operation is under way.
TEST_P(LaneFailure, LeavingWithOperationsPendingIsAFailure) {
  const Failures failures = run(2, 30, [](RankContext& c) {
    Values x(DType::kF32, 3000);
    if (c.world.rank() == 0) {
      c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kSum);
      return;
    }
    for (;;) c.world.recv(c.compute, x.view(), 0);
  });
  EXPECT_EQ(failures.error.find("rank 0 left with operations pending: all_reduce #1 over world"), 0u) << failures.error;
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceFailure,
                         ::testing::Values(DeviceTransport::kThread, DeviceTransport::kHostStaged, DeviceTransport::kNccl),
                         transport_name);
INSTANTIATE_TEST_SUITE_P(Transports, LaneFailure, ::testing::Values(DeviceTransport::kThread, DeviceTransport::kHostStaged),
                         transport_name);

}  // namespace
}  // namespace trident::conformance
