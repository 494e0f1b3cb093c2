// CUDA streams: work of the device and operations of the host in one order, events, waits in every state.
#include "device/cuda/cuda_stream.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"
#include "device/no_allocation.h"
#include "tests/cuda/stream_rank.h"
#include "tests/support/error_text.h"

namespace trident::testing {
namespace {

TEST(CudaStream, IsNonBlockingHasItsPriorityAndItsName) {
  const SimulatedScope scope;
  Rank rank;
  unsigned flags = 0;
  int priority = 1;
  ASSERT_EQ(cudaStreamGetFlags(rank.b.handle(), &flags), cudaSuccess);
  ASSERT_EQ(cudaStreamGetPriority(rank.b.handle(), &priority), cudaSuccess);
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
  EXPECT_EQ(priority, -1);
  EXPECT_EQ(rank.b.name(), "b");
  EXPECT_EQ(rank.b.device(), 0);
}

TEST(CudaStream, HostOperationsRunBetweenKernelsInOrder) {
  for (const StreamOrder order : kStreamOrders) {
    for (const Mode mode : {Mode::kQueue, Mode::kImmediate}) {
      const SimulatedScope scope(with(order));
      Rank rank(mode);
      Step two(rank.happened, 2), three(rank.happened, 3), five(rank.happened, 5);
      rank.work(rank.a, 1);
      rank.a.enqueue(two);
      rank.a.enqueue(three);
      rank.work(rank.a, 4);
      rank.a.enqueue(five);
      rank.work(rank.a, 6);
      rank.work(rank.a, 7);
      rank.a.synchronize();
      EXPECT_EQ(rank.happened, (std::vector<int>{1, 2, 3, 4, 5, 6, 7}));
    }
  }
}

TEST(CudaStream, AQueuedOperationWaitsForTheDeviceAndDoesNotHoldTheHost) {
  const SimulatedScope scope;
  Rank rank;
  bool ready = false;
  simulated::enqueue(
      rank.a.handle(), "slow", [&] { return ready; }, [&] { rank.happened.push_back(1); });
  Step two(rank.happened, 2);
  rank.a.enqueue(two);
  const Event event = rank.a.record();
  for (int i = 0; i < 50; ++i) rank.progress.poll();
  EXPECT_TRUE(rank.happened.empty());
  EXPECT_FALSE(event.done());
  ready = true;
  event.wait_host();
  EXPECT_TRUE(event.done());
  EXPECT_EQ(rank.happened, (std::vector<int>{1, 2}));
}

TEST(CudaStream, ImmediateOperationsAreCompleteWhenEnqueueReturns) {
  const SimulatedScope scope;
  Rank rank(Mode::kImmediate);
  rank.work(rank.a, 1);
  Step two(rank.happened, 2);
  rank.a.enqueue(two);
  EXPECT_EQ(rank.happened, (std::vector<int>{1, 2}));
}

TEST(CudaStream, EventsCoverWhatWasEnqueuedBeforeThem) {
  const SimulatedScope scope;
  Rank rank;
  EXPECT_TRUE(rank.a.record().done()) << "nothing was enqueued";
  rank.work(rank.a, 1);
  const Event first = rank.a.record();
  EXPECT_EQ(rank.a.record().ticket(), first.ticket()) << "an event more for no work";
  Step two(rank.happened, 2, false);
  rank.a.enqueue(two);
  const Event second = rank.a.record();
  first.wait_host();
  EXPECT_EQ(rank.happened, std::vector<int>{1});
  EXPECT_FALSE(second.done());
  two.open = true;
  second.wait_host();
  EXPECT_EQ(rank.happened, (std::vector<int>{1, 2}));
  rank.a.synchronize();
  rank.a.synchronize();
}

TEST(CudaStream, AnEventIsNotDoneBecauseAnOlderOneIs) {
  const SimulatedScope scope;
  Rank rank;
  bool ready = false;
  rank.work(rank.a, 1);
  const Event first = rank.a.record();
  simulated::enqueue(
      rank.a.handle(), "slow", [&] { return ready; }, [&] { rank.happened.push_back(2); });
  const Event second = rank.a.record();
  first.wait_host();
  EXPECT_FALSE(second.done());
  ready = true;
  second.wait_host();
  EXPECT_EQ(rank.happened, (std::vector<int>{1, 2}));
}

// ---- waits between streams: the waited-for work in either phase, the waiting stream in either phase

TEST(CudaStream, DeviceWorkWaitsForDeviceWork) {
  for (const StreamOrder order : kStreamOrders) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      const SimulatedScope scope(with(order, seed));
      Rank rank;
      for (int i = 0; i < 5; ++i) rank.work(rank.a, i);
      rank.b.wait(rank.a.record());
      EXPECT_EQ(simulated::census().queued > 0, order != StreamOrder::kEager) << "the host waited";
      rank.work(rank.b, 5);
      rank.b.synchronize();
      EXPECT_EQ(rank.happened, (std::vector<int>{0, 1, 2, 3, 4, 5}));
    }
  }
}

TEST(CudaStream, AForgottenWaitIsFound) {
  int wrong = 0;
  for (const StreamOrder order : {StreamOrder::kRandom, StreamOrder::kTargetFirst}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const SimulatedScope scope(with(order, seed));
      Rank rank;
      const Buffer data = allocate_cuda(0, 4, "data");
      const int value = 7;
      int read = -1;
      check_cuda(cudaMemcpyAsync(data.data(), &value, 4, cudaMemcpyHostToDevice, rank.a.handle()), "test");
      rank.a.record();  // and nobody waits for it
      check_cuda(cudaMemcpyAsync(&read, data.data(), 4, cudaMemcpyDeviceToHost, rank.b.handle()), "test");
      wrong += read != 7;
      rank.a.synchronize();
    }
  }
  EXPECT_GE(wrong, 5);
}

TEST(CudaStream, DeviceWorkWaitsForHostOperations) {
  for (const Mode mode : {Mode::kQueue, Mode::kImmediate}) {
    const SimulatedScope scope;
    Rank rank;
    CudaStream waiting(0, "waiting", mode, rank.progress, 0);
    rank.work(rank.a, 1);
    Step two(rank.happened, 2, false);
    rank.a.enqueue(two);
    rank.progress.set_idle_hook([&](double, FunctionRef<std::string()>) { two.open = true; });
    waiting.wait(rank.a.record());
    EXPECT_EQ(two.open, mode == Mode::kImmediate);
    rank.work(waiting, 3);
    waiting.synchronize();
    EXPECT_EQ(rank.happened, (std::vector<int>{1, 2, 3}));
  }
}

TEST(CudaStream, HostOperationsWaitForDeviceWorkOfAnotherStream) {
  const SimulatedScope scope;
  Rank rank;
  bool ready = false;
  Step one(rank.happened, 1, false), three(rank.happened, 3);
  rank.b.enqueue(one);  // b is in the host phase
  simulated::enqueue(
      rank.a.handle(), "slow", [&] { return ready; }, [&] { rank.happened.push_back(2); });
  rank.b.wait(rank.a.record());
  rank.b.enqueue(three);
  one.open = true;
  for (int i = 0; i < 50; ++i) rank.progress.poll();
  EXPECT_EQ(rank.happened, std::vector<int>{1});
  ready = true;
  rank.work(rank.b, 4);
  rank.b.synchronize();
  EXPECT_EQ(rank.happened, (std::vector<int>{1, 2, 3, 4}));
}

TEST(CudaStream, WaitsForACpuStreamAndIsWaitedForByOne) {
  const SimulatedScope scope;
  Rank rank;
  CpuStream host("host", CpuStream::Mode::kQueue, rank.progress);
  Step one(rank.happened, 1, false), three(rank.happened, 3);
  host.enqueue(one);
  rank.a.wait(host.record());
  one.open = true;
  rank.work(rank.a, 2);
  host.wait(rank.a.record());
  host.enqueue(three);
  host.synchronize();
  EXPECT_EQ(rank.happened, (std::vector<int>{1, 2, 3}));
}

TEST(CudaStream, DoneEventsNoEventAndItsOwnAreNotWaitedFor) {
  const SimulatedScope scope;
  Rank rank;
  rank.a.wait(Event());
  rank.work(rank.a, 1);
  const Event own = rank.a.record();
  rank.a.wait(own);
  own.wait_host();
  rank.b.wait(own);
  EXPECT_EQ(simulated::census().queued, 0u);
}

TEST(CudaStream, StreamsOfTwoDevicesWaitForEachOther) {
  simulated::Settings settings;
  settings.devices = 2;
  const SimulatedScope scope(settings);
  Rank rank;
  CudaStream other(1, "other", Mode::kQueue, rank.progress, 0);
  rank.work(rank.a, 1);
  other.wait(rank.a.record());
  rank.work(other, 2);
  rank.b.wait(other.record());
  rank.work(rank.b, 3);
  rank.b.synchronize();
  EXPECT_EQ(rank.happened, (std::vector<int>{1, 2, 3}));
}

// ---- the ring of events

TEST(CudaStream, AnOldEventMayWaitLongerButNeverShorter) {
  const SimulatedScope scope(with(StreamOrder::kTargetFirst));
  Rank rank;
  bool ready = false;
  rank.work(rank.a, 0);
  const Event old = rank.a.record();
  for (std::size_t i = 1; i < CudaStream::kEvents; ++i) {
    rank.work(rank.a, static_cast<int>(i));
    rank.a.record();
  }
  simulated::enqueue(
      rank.a.handle(), "late", [&] { return ready; }, [&] { rank.happened.push_back(-1); });
  const Event young = rank.a.record();  // has the old one's place
  for (int i = 0; i < 2000; ++i) old.done();
  EXPECT_FALSE(old.done());
  EXPECT_FALSE(young.done());
  rank.b.wait(old);
  ready = true;
  rank.work(rank.b, -2);
  rank.b.synchronize();
  EXPECT_EQ(rank.happened[0], 0);
  EXPECT_EQ(rank.happened.back(), -2);
  EXPECT_TRUE(old.done());
  EXPECT_TRUE(young.done());
  EXPECT_EQ(rank.happened.size(), CudaStream::kEvents + 2);
}

TEST(CudaStream, ManyRoundsOfTheRing) {
  const SimulatedScope scope(with(StreamOrder::kEager));
  Rank rank;
  for (std::size_t i = 0; i < 3 * CudaStream::kEvents + 5; ++i) {
    rank.work(rank.a, static_cast<int>(i));
    const Event event = rank.a.record();
    if (i % 100 == 0) event.wait_host();
  }
  rank.a.synchronize();
  EXPECT_EQ(rank.happened.size(), 3 * CudaStream::kEvents + 5);
  EXPECT_LE(simulated::census().events, CudaStream::kEvents);
}

TEST(CudaStream, AnEventThatWasNeverRecordedIsABug) {
  const SimulatedScope scope;
  Rank rank;
  EXPECT_THROW(rank.a.is_done(2), InternalError);
}

// CUDA streams as the host sees them: failures, what is told while it waits, records.

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
  int naps = 0, reports = 0;
  rank.progress.set_naps({30, 30, 30}, [&] { ++naps; });
  rank.progress.set_idle_hook([&](double, FunctionRef<std::string()> describe) {
    awaited = describe();
    ready = naps > 3 * ++reports || reports == 30;  // a busy machine prolongs some
  });
  rank.a.synchronize();
  EXPECT_EQ(awaited, "CUDA stream a of device 0: work up to event 1 of 1");
  EXPECT_GT(naps, 3 * reports) << "nobody rings when a device is done";
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
