// CUDA streams: work of the device and operations of the host in one order, events, waits in every state.
#include "device/cuda/cuda_stream.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"
#include "tests/cuda/stream_rank.h"

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

}  // namespace
}  // namespace trident::testing
