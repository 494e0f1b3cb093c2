// Ranks with devices that disagree, stay away, give up or throw, on every transport. What they share with ranks without devices is
// failure_conformance.h's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <algorithm>

#include "core/check.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/simulated/nccl.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/parallel/failure_conformance.h"
#include "tests/support/error_text.h"

namespace trident::conformance {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

Failures run_on(DeviceTransport transport, int ranks, double timeout, const std::function<void(RankContext&)>& body) {
  DeviceRanks setup{.transport = transport, .ranks = ranks, .gpus = transport == DeviceTransport::kNccl ? ranks : 1,
                    .timeout_seconds = timeout};
  setup.options.nccl.traffic = {.max_ctas = 0, .messages = NcclTraffic::Messages::kAll};
  setup.options.nccl.timeout_seconds = 0.75 * timeout;
  setup.options.staged = {.collective_bytes = 65536, .message_bytes = 65536};
  const SimulatedScope scope({.devices = ranks});
  const Failures failures = run_failing(setup, body);
  simulated::recover();
  simulated::reset_nccl();
  return failures;
}

class DeviceFailure : public ::testing::TestWithParam<DeviceTransport> {
 protected:
  Failures run(int ranks, double timeout, const std::function<void(RankContext&)>& body) {
    return run_on(GetParam(), ranks, timeout, body);
  }
};

TEST_P(DeviceFailure, TheWatchdogNamesOperationAndWhoIsMissing) {
  const Failures failures = run(3, kMissingSeconds, [](RankContext& c) {
    const auto tp = c.world.split(backwards(c.world), "tp");  // group order 2, 1, 0: messages speak of global ranks
    Values x(DType::kF32, 8);
    if (c.world.rank() == 1) return;
    tp->all_reduce(*c.queues[0], x.view(), ReduceOp::kSum);
    c.queues[0]->synchronize();
  });
  EXPECT_THAT(failures.error,
              MatchesRegex("rank [02] waited [0-9.]+ s (in|for) all_reduce #[12] over tp.*rank 1 has not arrived"));
}

TEST_P(DeviceFailure, TheWatchdogSeesMessages) {
  const Failures failures = run(2, kMissingSeconds, [](RankContext& c) {
    Values x(DType::kF32, 8);
    if (c.world.rank() == 1) return;
    c.world.recv(*c.queues[0], x.view(), 1);
    c.queues[0]->synchronize();
  });
  EXPECT_THAT(failures.error, HasSubstr("recv #1 from rank 1 over world"));
  EXPECT_THAT(failures.error, HasSubstr("rank 1 has not sent"));
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

INSTANTIATE_TEST_SUITE_P(Transports, DeviceFailure,
                         ::testing::Values(DeviceTransport::kThread, DeviceTransport::kHostStaged, DeviceTransport::kNccl),
                         transport_name);
INSTANTIATE_TEST_SUITE_P(Transports, LaneFailure, ::testing::Values(DeviceTransport::kThread, DeviceTransport::kHostStaged),
                         transport_name);

FailureCase on(DeviceTransport transport, int ranks) {
  FailureCase made{fmt::format("{}{}ranks", transport_name({transport, 0}), ranks),
                   std::vector<int>(static_cast<std::size_t>(ranks)),
                   [=](double timeout, const auto& body) { return run_on(transport, ranks, timeout, body); }};
  made.seeds = 4;
  if (transport == DeviceTransport::kNccl) made.barriers = FailureCase::Barriers::kApart;
  return made;
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Devices, CommunicatorFailures,
                         ::testing::Values(on(DeviceTransport::kThread, 2), on(DeviceTransport::kThread, 4),
                                         on(DeviceTransport::kHostStaged, 2), on(DeviceTransport::kHostStaged, 4),
                                         on(DeviceTransport::kNccl, 2), on(DeviceTransport::kNccl, 4)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Devices, PendingFailures,
                         ::testing::Values(on(DeviceTransport::kThread, 2), on(DeviceTransport::kHostStaged, 2)), name_of_case);

}  // namespace trident::conformance
