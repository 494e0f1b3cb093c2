// A step's simulator by hand: streams of a rank that slow each other down, messages in line on a wire, loops, and the launch gap.
#include "planner/price/step_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/check.h"
#include "planner/price/beside_streams.h"
#include "planner/price/step_price.h"

namespace trident {
namespace {

// 4 s of compute beside 2 s of communication that is issued with it: 1.5 and 2 times as long while both run. The communication ends
// at 4 with 4/1.5 s of compute done; the rest runs alone.
TEST(BesideStreams, BothSidesAreSlowerWhileBothRun) {
  BesideStreams streams({1.5, 2}, 1);
  streams.issue_beside(2);
  streams.compute(4);
  EXPECT_DOUBLE_EQ(streams.now(), 4 + 4.0 / 3);
  EXPECT_DOUBLE_EQ(streams.end_of(0), 4);
}

// 10 s beside 3 s of compute: 3 x 2 s together, in which 6/4 s of the ten are done; what is left runs alone.
TEST(BesideStreams, WhatIsLeftRunsAlone) {
  BesideStreams streams({2, 4}, 1);
  streams.issue_beside(10);
  streams.compute(3);
  EXPECT_DOUBLE_EQ(streams.now(), 6);
  streams.wait_for(0);
  EXPECT_DOUBLE_EQ(streams.now(), 6 + 8.5);
}

StreamOp compute(double seconds) {
  StreamOp op;
  op.seconds = seconds;
  return op;
}

StreamOp send(bool activation, int stage, int micro_batch, double seconds) {
  StreamOp op;
  op.stream = StreamOp::Stream::kWire;
  op.channel = channel_of(activation, stage);
  op.micro_batch = micro_batch;
  op.seconds = seconds;
  return op;
}

StreamOp receiving(StreamOp op, bool activation, int stage, int micro_batch) {
  op.receives = true;
  op.channel = channel_of(activation, stage);
  op.micro_batch = micro_batch;
  return op;
}

// Rank 0 computes 1 s a micro-batch and sends each for 3 s: the wire carries one after the other, so that rank 1, which takes 2 s,
// has them at 4, 7, 10, ... 1 + 3m, for any number of turns, written out or not.
TEST(StepSimulation, TurnsOfALoopAreMicroBatchesOneAfterTheOther) {
  for (const int more : {0, 1, 5}) {
    RankOps first, second;
    for (const int m : {0, 1, 2}) {
      first.ops.push_back(compute(1));
      first.ops.push_back(send(true, 1, m, 3));
      second.ops.push_back(receiving(compute(2), true, 1, m));
    }
    if (more > 0) {
      first.loops = {{2, 4, more, {0, 1}}};
      second.loops = {{1, 2, more, {0, 1}}};
    }
    const SimulatedStep step = simulate({first, second}, {2, 3 + more}, {}, Spans::kOff);
    const double arrives = 1 + 3 * (3 + more);
    EXPECT_DOUBLE_EQ(step.makespan, arrives + 2) << more;
    EXPECT_DOUBLE_EQ(step.ranks[0].busy, 3 + more) << more;
    EXPECT_DOUBLE_EQ(step.ranks[1].busy, 2 * (3 + more)) << more;
    // Waits a second for the first to be sent; then for messages under way.
    EXPECT_DOUBLE_EQ(step.ranks[1].bubble, 1) << more;
    EXPECT_DOUBLE_EQ(step.ranks[1].message, arrives - 1 - 2 * (2 + more)) << more;
  }
}

// A turn too many asks for a message that nobody sends.
TEST(StepSimulation, RanksThatWaitForEachOtherAreABug) {
  RankOps first, second;
  first.ops = {compute(1), send(true, 1, 0, 1), compute(1)};
  second.ops = {receiving(compute(1), true, 1, 0)};
  second.loops = {{0, 1, 1, {0, 1}}};
  EXPECT_THROW(simulate({first, second}, {2, 2}, {}, Spans::kOff), InternalError);
}

// By call 4 s of device and `issue` s of host; collectives of two ranks take 2 s.
struct SetPrices final : WorkPrices {
  double issue = 0;
  double device_seconds(const RecordedOperation&) const override { return 4; }
  double issue_seconds(const RecordedOperation&) const override { return issue; }
  double seconds(const RecordedCollective&, const GroupPlace&) const override { return 2; }
  OverlapSlowdown slowdown() const override { return {}; }
  double step_seconds() const override { return 0; }
};

// The host issues three operations; the device has 12 s of work and a collective of 2 s to hide that.
TEST(StepPrice, TheLaunchGapIsWhatTheHostTakesLonger) {
  PassRecord pass;
  RecordedOperation again;
  again.recomputed = true;
  RecordedCollective sum;
  sum.axis = Axis::kTensor, sum.group = "tp", sum.size = 2;
  pass.calls = {RecordedOperation(), again, sum, RecordedOperation()};
  const ProcessGrid grid({.tensor = 2});
  SetPrices prices;
  for (const double issue : {0.0, 4.0, 5.0, 7.0}) {
    prices.issue = issue;
    const TimeParts parts = price_pass(pass, grid, prices);
    EXPECT_EQ(parts[TimePart::kCompute], 8);
    EXPECT_EQ(parts[TimePart::kRecompute], 4);
    EXPECT_EQ(parts[TimePart::kTensor], 2);
    EXPECT_EQ(parts[TimePart::kLaunch], issue == 5 ? 1 : issue == 7 ? 7 : 0) << issue;
    EXPECT_EQ(parts.total(), std::max(14.0, 3 * issue)) << issue;
  }
}

}  // namespace
}  // namespace trident
