// Doorbells, queue streams, and how a rank waits.
#include "device/host/cpu_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "device/no_allocation.h"

namespace trident {
namespace {

// Completes once `open` is set; notes when it did.
class Gate final : public PendingOperation {
 public:
  explicit Gate(std::vector<int>* order = nullptr, int number = 0) : order_(order), number_(number) {}
  bool poll() override {
    EXPECT_FALSE(complete) << "polled after it was complete";
    ++polls;
    if (!open) return false;
    complete = true;
    if (order_ != nullptr) order_->push_back(number_);
    return true;
  }
  std::string describe() const override { return "gate " + std::to_string(number_); }

  std::atomic<bool> open{false};
  bool complete = false;
  int polls = 0;

 private:
  std::vector<int>* order_;
  int number_;
};

struct Rank {
  Doorbell doorbell;
  Progress progress{doorbell};
};

TEST(Doorbell, WaitReturnsAtOnceWhenAlreadyRung) {
  Doorbell bell;
  const std::uint32_t seen = bell.count();
  bell.ring();
  const double start = monotonic_seconds();
  bell.wait(seen, 30.0);
  EXPECT_LT(monotonic_seconds() - start, 10.0);
}

TEST(Doorbell, WaitEndsAfterItsTime) {
  Doorbell bell;
  bell.wait(bell.count(), 0.01);
  bell.wait(bell.count(), 0.0);
  bell.wait(bell.count(), -1.0);
}

// Two threads hand a number back and forth; a lost wake-up takes 30 s.
TEST(Doorbell, TwoThreadsRingEachOther) {
  constexpr int kRounds = 2000;
  Doorbell bells[2];
  double longest[2] = {};
  int turn_data = 0;
  std::atomic<int> turn{0};
  const auto player = [&](int me) {
    for (int round = 0; round < kRounds; ++round) {
      while (true) {
        const std::uint32_t seen = bells[me].count();
        if (turn.load(std::memory_order_acquire) == me) break;
        const double start = monotonic_seconds();
        bells[me].wait(seen, 30.0);
        longest[me] = std::max(longest[me], monotonic_seconds() - start);
      }
      ++turn_data;
      turn.store(1 - me, std::memory_order_release);
      bells[1 - me].ring();
    }
  };
  std::thread other(player, 1);
  player(0);
  other.join();
  EXPECT_EQ(turn_data, 2 * kRounds);
  for (const double seconds : longest) EXPECT_LT(seconds, 25.0);
}

TEST(CpuStream, OperationsCompleteInOrder) {
  Rank rank;
  CpuStream stream("dp", CpuStream::Mode::kQueue, rank.progress);
  std::vector<int> order;
  Gate a(&order, 1), b(&order, 2);
  stream.enqueue(a);
  stream.enqueue(b);
  const Event event = stream.record();
  b.open = true;
  EXPECT_FALSE(rank.progress.poll());
  EXPECT_EQ(b.polls, 0);
  EXPECT_FALSE(event.done());
  a.open = true;
  EXPECT_TRUE(rank.progress.poll());
  EXPECT_TRUE(event.done());
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  stream.synchronize();
}

TEST(CpuStream, EventCoversWhatWasEnqueuedBeforeIt) {
  Rank rank;
  CpuStream stream("dp", CpuStream::Mode::kQueue, rank.progress);
  EXPECT_TRUE(stream.record().done());
  Gate a, b;
  stream.enqueue(a);
  const Event first = stream.record();
  stream.enqueue(b);
  a.open = true;
  rank.progress.poll();
  EXPECT_TRUE(first.done());
  EXPECT_FALSE(stream.record().done());
  b.open = true;
  stream.record().wait_host();
  EXPECT_TRUE(b.complete);
  EXPECT_THROW(stream.is_done(3), InternalError);
}

TEST(CpuStream, OneQueueWaitsForAnother) {
  Rank rank;
  CpuStream first("first", CpuStream::Mode::kQueue, rank.progress), second("second", CpuStream::Mode::kQueue, rank.progress);
  Gate a, b;
  b.open = true;
  first.enqueue(a);
  second.wait(first.record());
  second.enqueue(b);
  rank.progress.poll();
  EXPECT_FALSE(b.complete);
  a.open = true;
  second.synchronize();
  EXPECT_TRUE(a.complete && b.complete);
}

TEST(CpuStream, WaitingForOneselfOrADoneEventIsNothing) {
  Rank rank;
  CpuStream stream("s", CpuStream::Mode::kQueue, rank.progress), other("o", CpuStream::Mode::kQueue, rank.progress);
  Gate a;
  stream.enqueue(a);
  const Event event = stream.record();
  stream.wait(event);
  EXPECT_EQ(stream.record().ticket(), event.ticket());
  stream.wait(other.record());
  EXPECT_EQ(stream.record().ticket(), event.ticket());
  a.open = true;
  stream.synchronize();
}

TEST(CpuStream, ImmediateStreamWaitsWhileOthersProgress) {
  Rank rank;
  CpuStream compute("compute", CpuStream::Mode::kImmediate, rank.progress);
  CpuStream queue("queue", CpuStream::Mode::kQueue, rank.progress);
  Gate queued;
  queue.enqueue(queued);

  // Completes only after the operation on the other stream has: it would hang if waiting did not advance that.
  class AfterQueued final : public PendingOperation {
   public:
    explicit AfterQueued(Gate& gate) : gate_(gate) {}
    bool poll() override {
      gate_.open = true;
      return gate_.complete;
    }
    std::string describe() const override { return "after"; }

   private:
    Gate& gate_;
  } after(queued);
  compute.enqueue(after);
  EXPECT_TRUE(queued.complete);
  EXPECT_TRUE(compute.record().done());
}

TEST(CpuStream, ImmediateStreamWaitsForAnEvent) {
  Rank rank;
  CpuStream compute("compute", CpuStream::Mode::kImmediate, rank.progress);
  CpuStream queue("queue", CpuStream::Mode::kQueue, rank.progress);
  Gate gate;
  queue.enqueue(gate);
  std::thread peer([&] {
    gate.open = true;
    rank.doorbell.ring();
  });
  compute.wait(queue.record());
  EXPECT_TRUE(gate.complete);
  peer.join();
}

TEST(CpuStream, AFullQueueMakesEnqueueWait) {
  Rank rank;
  CpuStream stream("s", CpuStream::Mode::kQueue, rank.progress);
  std::vector<Gate> gates(CpuStream::kCapacity + 1);
  for (std::size_t i = 0; i < CpuStream::kCapacity; ++i) stream.enqueue(gates[i]);
  std::thread peer([&] {
    gates[0].open = true;
    rank.doorbell.ring();
  });
  stream.enqueue(gates[CpuStream::kCapacity]);
  EXPECT_TRUE(gates[0].complete);
  EXPECT_FALSE(gates[1].complete);
  peer.join();
  for (Gate& gate : gates) gate.open = true;
  stream.synchronize();
  EXPECT_TRUE(gates.back().complete);
}

TEST(Progress, AFailingOperationThrowsAtTheWaiter) {
  class Failing final : public PendingOperation {
   public:
    bool poll() override {
      if (++polls < 2) return false;
      throw CommunicationError("peer 3 is gone");
    }
    std::string describe() const override { return "failing"; }
    int polls = 0;
  } failing;
  Rank rank;
  CpuStream stream("s", CpuStream::Mode::kQueue, rank.progress);
  stream.enqueue(failing);
  EXPECT_THROW(stream.synchronize(), CommunicationError);
}

TEST(Progress, TheIdleHookHearsWhatIsAwaitedAndMayGiveUp) {
  Rank rank;
  CpuStream stream("dp", CpuStream::Mode::kQueue, rank.progress);
  Gate never(nullptr, 17);
  stream.enqueue(never);
  int calls = 0;
  std::string heard;
  rank.progress.set_idle_hook([&](double seconds, FunctionRef<std::string()> describe) {
    EXPECT_GT(seconds, 0.05);
    heard = describe();
    if (++calls == 2) throw CommunicationError("gave up");
  });
  const double cpu = thread_cpu_seconds();
  {
    const NoAllocationScope step("step");  // waiting allocates nothing; the hook may
    EXPECT_THROW(stream.synchronize(), CommunicationError);
  }
  EXPECT_EQ(heard, "gate 17");
  EXPECT_EQ(calls, 2);
  EXPECT_LT(thread_cpu_seconds() - cpu, 0.1) << "waiting burns the core";
  never.open = true;
  stream.synchronize();
}

// Time in vain is the stream's that was waited for; time in which something advanced, or nobody waited, is nobody's.
TEST(Progress, CountsTheTimeWaitedInVain) {
  Rank rank;
  CpuStream first("first", CpuStream::Mode::kQueue, rank.progress), second("second", CpuStream::Mode::kQueue, rank.progress);
  Gate never, open;
  open.open = true;
  second.enqueue(open);
  second.synchronize();
  EXPECT_EQ(rank.progress.waited_seconds(), 0);
  first.enqueue(never);
  rank.progress.set_idle_hook([&](double, FunctionRef<std::string()>) { never.open = true; });
  const double start = monotonic_seconds();
  first.synchronize();
  const double all = monotonic_seconds() - start;
  EXPECT_GT(first.waited_seconds(), 0.05);  // the hook is called after a tenth of a second
  EXPECT_LE(first.waited_seconds(), all);
  EXPECT_EQ(second.waited_seconds(), 0);
  EXPECT_EQ(rank.progress.waited_seconds(), first.waited_seconds());
}

TEST(Progress, AWaitThatDoesWorkIsNotCounted) {
  class Busy final : public PendingOperation {
   public:
    bool poll() override {
      for (const double start = monotonic_seconds(); monotonic_seconds() - start < 0.05;) {
      }
      return ++looks == 2;
    }
    std::string describe() const override { return "busy"; }
    bool has_peers() const override { return peers; }
    int looks = 0;
    bool peers = true;
  } busy;
  Rank rank;
  CpuStream compute("compute", CpuStream::Mode::kImmediate, rank.progress);
  const double start = monotonic_seconds();
  compute.enqueue(busy);
  EXPECT_EQ(busy.looks, 2);
  EXPECT_LT(compute.waited_seconds(), monotonic_seconds() - start - 0.09);
  EXPECT_GT(compute.held_seconds().value(), 0.09) << "work of its operations holds the host, too";
  EXPECT_LE(compute.held_seconds().value(), monotonic_seconds() - start);
  const double held = compute.held_seconds().value();
  busy.looks = 0, busy.peers = false;
  compute.enqueue(busy);
  EXPECT_EQ(compute.held_seconds().value(), held) << "nobody is waited for";
  CpuStream queue("queue", CpuStream::Mode::kQueue, rank.progress);
  EXPECT_FALSE(queue.held_seconds().has_value()) << "what it advances, other instructions do beside their own";
}

TEST(OperationLog, HoldsEveryOperationOnceInOrderAndEveryWait) {
  Rank rank;
  CpuStream compute("compute", CpuStream::Mode::kImmediate, rank.progress), queue("queue", CpuStream::Mode::kQueue, rank.progress);
  OperationLog log;
  Gate a, b, c, d, e;
  a.open = e.open = true;
  queue.enqueue(a);  // nobody listens yet
  rank.progress.set_log(&log);
  log.reserve(4);
  log.set_mode(OperationLog::Mode::kRecord);
  queue.enqueue(b);
  queue.enqueue(c);
  compute.enqueue(e);
  EXPECT_EQ(log.records().size(), 1u);
  rank.progress.set_idle_hook([&](double, FunctionRef<std::string()>) { b.open = c.open = true; });
  {
    const NoAllocationScope step("step");
    queue.synchronize();
  }
  log.set_mode(OperationLog::Mode::kCount);
  d.open = true;
  queue.enqueue(d);
  EXPECT_EQ(log.count(), 5u);

  using Kind = OperationRecord::Kind;
  const std::span<const OperationRecord> records = log.records();
  ASSERT_EQ(records.size(), 4u);  // e, b, c and the wait for them: d was only counted
  const OperationRecord &now = records[0], &first = records[1], &second = records[2], &wait = records[3];
  EXPECT_TRUE(now.stream == &compute && first.stream == &queue && second.stream == &queue && wait.stream == &queue);
  EXPECT_TRUE(now.kind == Kind::kOperation && first.kind == Kind::kOperation && second.kind == Kind::kOperation &&
              wait.kind == Kind::kWait);
  EXPECT_LE(first.issued, second.issued);
  EXPECT_EQ(first.start, first.issued);  // at the head at once
  EXPECT_EQ(second.start, first.end);    // behind the first
  EXPECT_GT(first.end - first.start, 0.05);
  EXPECT_GE(second.end, second.start);
  EXPECT_GE(wait.start, now.end);
  EXPECT_GE(wait.end, second.end);
  log.clear();
  EXPECT_TRUE(log.records().empty());
  rank.progress.set_log(nullptr);
  Gate unheard;
  unheard.open = true;
  queue.enqueue(unheard);
  EXPECT_EQ(log.count(), 5u);
}

// A wait for another stream's event is no operation, and the operation behind it begins when the event is there.
TEST(OperationLog, AnAwaitedEventIsNoOperation) {
  Rank rank;
  CpuStream first("first", CpuStream::Mode::kQueue, rank.progress), second("second", CpuStream::Mode::kQueue, rank.progress);
  OperationLog log;
  log.set_mode(OperationLog::Mode::kRecord);
  rank.progress.set_log(&log);
  Gate slow, after;
  after.open = true;
  first.enqueue(slow);
  second.wait(first.record());
  second.enqueue(after);
  slow.open = true;
  second.synchronize();
  ASSERT_EQ(log.records().size(), 3u);
  EXPECT_EQ(log.records()[0].stream, &first);
  EXPECT_EQ(log.records()[1].stream, &second);
  EXPECT_GE(log.records()[1].start, log.records()[0].end);
  EXPECT_EQ(log.records()[2].kind, OperationRecord::Kind::kWait);
}

TEST(Progress, DescribesAnAwaitedEvent) {
  Rank rank;
  CpuStream first("first", CpuStream::Mode::kQueue, rank.progress), second("second", CpuStream::Mode::kQueue, rank.progress);
  Gate never;
  first.enqueue(never);
  second.wait(first.record());
  std::string heard;
  rank.progress.set_idle_hook([&](double, FunctionRef<std::string()> describe) {
    heard = describe();
    never.open = true;
  });
  second.synchronize();
  EXPECT_EQ(heard, "stream second: waiting for event 1 of stream first");
}

}  // namespace
}  // namespace trident
