// CUDA streams as the host sees them: failures, what is told while it waits, records.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/no_allocation.h"
#include "tests/cuda/stream_rank.h"
#include "tests/support/error_text.h"

namespace trident::testing {
namespace {

TEST(CudaStream, AFailedOperationThrowsWhereTheHostWaits) {
  const SimulatedScope scope;
  Rank rank;
  Failure failure;
  rank.work(rank.a, 1);
  EXPECT_THROW(
      {
        rank.a.enqueue(failure);
        rank.a.handle();
      },
      CommunicationError);
  check_cuda(cudaDeviceSynchronize(), "test");
}

TEST(CudaStream, AFailedKernelThrowsWhereTheHostWaits) {
  const SimulatedScope scope;
  {
    Rank rank;
    rank.work(rank.a, 1);
    simulated::enqueue(rank.a.handle(), "bad", [] { throw simulated::DeviceFailure{cudaErrorIllegalAddress}; });
    const Event event = rank.a.record();
    expect_parts(error_of<InternalError>([&] { event.wait_host(); }), {"cudaErrorIllegalAddress"});
    rank.b.handle();
    EXPECT_THROW(rank.b.record(), InternalError) << "other streams of the device work on";
    simulated::recover();
  }
}

TEST(CudaStream, ErrorsOfEveryCallAreThrown) {
  const SimulatedScope scope;
  const auto fails = [](const char* call, auto action) {
    simulated::fail_next(call, cudaErrorUnknown);
    EXPECT_THROW(action(), CommunicationError) << call;
  };
  Rank rank;
  fails("cudaStreamCreateWithPriority", [&] { CudaStream(0, "c", Mode::kQueue, rank.progress, 0); });
  fails("cudaSetDevice", [&] { rank.a.handle(); });
  rank.work(rank.a, 1);
  fails("cudaEventCreateWithFlags", [&] { rank.a.record(); });
  fails("cudaEventRecord", [&] { rank.a.record(); });
  const Event event = rank.a.record();
  fails("cudaEventQuery", [&] { event.done(); });
  fails("cudaStreamWaitEvent", [&] { rank.b.wait(event); });
  rank.a.synchronize();
}

TEST(CudaStream, TheWatchdogIsToldWhatIsAwaited) {
  const SimulatedScope scope;
  Rank rank;
  bool ready = false;
  simulated::enqueue(
      rank.a.handle(), "slow", [&] { return ready; }, [] {});
  std::string awaited;
  int naps = 0;
  rank.progress.set_naps({30, 30, 30}, [&] { ++naps; });
  rank.progress.set_idle_hook([&](double, FunctionRef<std::string()> describe) {
    awaited = describe();
    ready = true;
  });
  rank.a.synchronize();
  EXPECT_EQ(awaited, "CUDA stream a of device 0: work up to event 1 of 1");
  EXPECT_GT(naps, 3) << "nobody rings when a device is done";
  EXPECT_GT(rank.a.waited_seconds(), 0.0);
  EXPECT_EQ(rank.b.waited_seconds(), 0.0);
}

TEST(CudaStream, WaitingAdvancesOperationsOfOtherStreams) {
  const SimulatedScope scope;
  Rank rank;
  Step one(rank.happened, 1);
  rank.work(rank.b, 0);
  rank.b.enqueue(one);
  const Event of_b = rank.b.record();
  bool ready = false;
  simulated::enqueue(
      rank.a.handle(), "until b is done", [&] { return ready = of_b.done(); }, [&] { rank.happened.push_back(2); });
  rank.a.synchronize();
  EXPECT_EQ(rank.happened, (std::vector<int>{0, 1, 2}));
}

TEST(CudaStream, RecordsNameTheStream) {
  const SimulatedScope scope;
  Rank rank;
  OperationLog log;
  log.set_mode(OperationLog::Mode::kRecord);
  rank.progress.set_log(&log);
  rank.work(rank.a, 1);
  Step two(rank.happened, 2);
  rank.a.enqueue(two);
  rank.work(rank.a, 3);
  rank.a.synchronize();
  int operations = 0;
  for (const OperationRecord& record : log.records()) {
    EXPECT_EQ(record.stream, &rank.a);
    EXPECT_LE(record.start, record.end);
    operations += record.kind == OperationRecord::Kind::kOperation;
  }
  EXPECT_EQ(operations, 1);
}

TEST(CudaStream, AllocatesNothingInsideAStep) {
  const SimulatedScope scope;
  Rank rank;
  Step one(rank.happened, 1), two(rank.happened, 2);
  rank.happened.reserve(10);
  const auto round = [&] {
    check_cuda(cudaLaunchHostFunc(
                   rank.a.handle(), [](void*) {}, nullptr),
               "test");
    rank.a.enqueue(one);
    rank.b.wait(rank.a.record());
    check_cuda(cudaLaunchHostFunc(
                   rank.b.handle(), [](void*) {}, nullptr),
               "test");
    rank.a.wait(rank.b.record());
    rank.a.synchronize();
    rank.b.synchronize();
  };
  round();
  const NoAllocationScope step("step");
  round();
}

TEST(CudaStream, RanksAreThreads) {
  const SimulatedScope scope;
  std::vector<std::thread> ranks;
  std::vector<std::vector<int>> happened(4);
  for (auto& mine : happened) {
    ranks.emplace_back([&mine] {
      Rank rank;
      for (int round = 0; round < 20; ++round) {
        Step odd(rank.happened, 3 * round + 1);
        rank.work(rank.a, 3 * round);
        rank.a.enqueue(odd);
        rank.b.wait(rank.a.record());
        rank.work(rank.b, 3 * round + 2);
        rank.a.wait(rank.b.record());
        if (round % 3 == 0) rank.b.synchronize();
        rank.a.synchronize();
      }
      mine = rank.happened;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  std::vector<int> right(60);
  std::iota(right.begin(), right.end(), 0);
  for (const auto& mine : happened) EXPECT_EQ(mine, right);
}

}  // namespace
}  // namespace trident::testing
