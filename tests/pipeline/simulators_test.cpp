// The parts below step programs: the order of messages, the check of channels, and the two simulators with their engine.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "core/check.h"
#include "pipeline/schedule/channel_check.h"
#include "pipeline/schedule/message_order.h"
#include "pipeline/schedule/schedule_generators.h"
#include "pipeline/schedule/schedule_simulator.h"
#include "pipeline/schedule/step_simulator.h"
#include "pipeline/schedule/task_engine.h"
#include "tests/pipeline/step_program_fixture.h"

namespace trident {
namespace {

TEST(MessageOrder, SendsFollowAndReceivesPrecedeTheirActions) {
  const auto woven = weave_messages(make_1f1b(2, 2), ReceivePosting::kLate);
  std::string text;
  using Kind = WovenItem::Kind;
  for (const auto& item : woven[0])
    text += item.kind == Kind::kAction ? to_string(item.action) + " " : item.kind == Kind::kSend ? "> " : "< ";
  EXPECT_EQ(text, "0F0 > 0F1 > < 0B0 < 0B1 ");
}

// Interleaved rank 0: the last rank is done with a chunk before the first rank wants it; early posting receives it meanwhile.
TEST(MessageOrder, ReceivesAreInTheOrderOfTheirSends) {
  for (const ReceivePosting posting : {ReceivePosting::kEarly, ReceivePosting::kLate})
    for (int p = 2; p <= 4; ++p) {
      const Schedule schedule = make_interleaved(p, 3, 2 * p);
      const auto woven = weave_messages(schedule, posting);
      std::map<std::tuple<int, int, bool>, std::vector<Message>> sent, received;  // by channel
      for (const auto& items : woven)
        for (const auto& item : items) {
          if (item.kind == WovenItem::Kind::kAction) continue;
          auto& list = item.kind == WovenItem::Kind::kSend ? sent : received;
          list[{source_rank(schedule, item.message), destination_rank(schedule, item.message), item.message.is_gradient}].push_back(
              item.message);
        }
      EXPECT_EQ(sent, received);
      // p interior boundaries times m, both ways; every boundary crosses ranks for p >= 2.
      std::size_t messages = 0;
      for (const auto& [channel, list] : sent) messages += list.size();
      EXPECT_EQ(messages, static_cast<std::size_t>(2 * (3 * p - 1) * 2 * p));
    }
}

TEST(MessageOrder, NoMessagesWithinARank) {
  const auto woven = weave_messages(make_interleaved(1, 3, 2), ReceivePosting::kEarly);
  for (const auto& item : woven[0]) EXPECT_EQ(item.kind, WovenItem::Kind::kAction);
}

using Kind = ChannelOp::Kind;
using PlaceList = std::vector<std::pair<int, int>>;

// Two ranks; channel 0 goes from rank 0 to rank 1, channel 1 back; barrier 0 has both.
std::optional<ChannelFault> fault(const std::vector<std::vector<ChannelOp>>& ranks, int capacity) {
  return find_channel_fault(ranks, 2, {2}, capacity);
}

TEST(ChannelCheck, MatchingOrderPasses) {
  const std::vector<std::vector<ChannelOp>> ops = {
      {{Kind::kSend, 0, 7, 0}, {Kind::kReceive, 1, 8, 1}, {Kind::kBarrier, 0, 0, 2}, {Kind::kSend, 0, 9, 3}},
      {{Kind::kReceive, 0, 7, 0}, {Kind::kSend, 1, 8, 1}, {Kind::kBarrier, 0, 0, 2}, {Kind::kReceive, 0, 9, 3}}};
  for (const int capacity : {0, 1, 2}) EXPECT_FALSE(fault(ops, capacity));
}

TEST(ChannelCheck, SendsThatFaceEachOtherNeedABuffer) {
  const std::vector<std::vector<ChannelOp>> ops = {{{Kind::kSend, 0, 1, 4}, {Kind::kReceive, 1, 2, 5}},
                                                   {{Kind::kSend, 1, 2, 6}, {Kind::kReceive, 0, 1, 7}}};
  const auto at_rendezvous = fault(ops, 0);
  ASSERT_TRUE(at_rendezvous);
  EXPECT_EQ(at_rendezvous->kind, ChannelFault::Kind::kDeadlock);
  EXPECT_EQ(at_rendezvous->places, (PlaceList{{0, 4}, {1, 6}}));
  EXPECT_FALSE(fault(ops, 1));
}

TEST(ChannelCheck, CapacityIsCounted) {
  const std::vector<std::vector<ChannelOp>> ops = {{{Kind::kSend, 0, 1, 0}, {Kind::kSend, 0, 2, 1}, {Kind::kReceive, 1, 3, 2}},
                                                   {{Kind::kSend, 1, 3, 0}, {Kind::kReceive, 0, 1, 1}, {Kind::kReceive, 0, 2, 2}}};
  EXPECT_TRUE(fault(ops, 0));
  EXPECT_FALSE(fault(ops, 1));  // the second send fits once the first message is read
  const std::vector<std::vector<ChannelOp>> crossed = {{{Kind::kSend, 0, 1, 0}, {Kind::kSend, 0, 2, 1}, {Kind::kReceive, 1, 3, 2}},
                                                       {{Kind::kSend, 1, 3, 0}, {Kind::kSend, 1, 4, 1}, {Kind::kReceive, 0, 1, 2}}};
  EXPECT_TRUE(fault(crossed, 1));
}

TEST(ChannelCheck, AnotherMessageIsReportedAtItsReceiver) {
  const std::vector<std::vector<ChannelOp>> ops = {{{Kind::kSend, 0, 1, 0}}, {{Kind::kReceive, 0, 2, 3}}};
  for (const int capacity : {0, 1}) {
    const auto found = fault(ops, capacity);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, ChannelFault::Kind::kWrongMessage);
    EXPECT_EQ(found->places, (PlaceList{{1, 3}}));
  }
}

TEST(ChannelCheck, ABarrierWaitsForAll) {
  const auto found = fault({{{Kind::kBarrier, 0, 0, 0}}, {}}, 1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->places, (PlaceList{{0, 0}}));
}

TEST(ChannelCheck, UnreceivedMessageIsADeadlockOnlyAtRendezvous) {
  const std::vector<std::vector<ChannelOp>> ops = {{{Kind::kSend, 0, 1, 0}}, {}};
  EXPECT_TRUE(fault(ops, 0));
  EXPECT_FALSE(fault(ops, 1));
  EXPECT_THROW(fault(ops, -1), InternalError);
}

// Forward `1`, backward `2` per unit, the rest free, except `collective` per gather and reduction.
StepCosts costs(double collective = 0, double message = 0) {
  return {[=](int, std::size_t, const Instruction& i) {
            if (i.is_compute()) return i.is_forward() ? 1.0 : 2.0;
            return i.kind == InstructionKind::kGather || i.kind == InstructionKind::kReduceGradients ? collective : 0.0;
          },
          [=](int, int) { return message; }};
}

// Equal stages in units: two blocks on each, and the ends without embedding and head time.
StepCosts equal_stages(const StepProgramSpec& spec, double message) {
  StepCosts c = costs(0, message);
  return {[=, ends = std::pair(spec.embedding_unit(), spec.head_unit())](int rank, std::size_t at, const Instruction& i) {
            return i.is_compute() && (i.unit == ends.first || i.unit == ends.second) ? 0.0 : c.instruction(rank, at, i);
          },
          c.message};
}

TEST(StepSimulator, AgreesWithTheScheduleSimulator) {
  for (const double message : {0.0, 0.75})
    for (const Schedule& schedule : {make_gpipe(4, 6), make_1f1b(4, 6), make_interleaved(4, 2, 8), make_1f1b(1, 3)})
      for (const ZeroPreset preset : kAllPresets) {
        const StepProgramSpec spec = small_spec(schedule, preset, kTied, 2);
        const StepTimeline step = simulate(build_step_programs(spec), equal_stages(spec, message));
        const ScheduleTimeline expected = simulate(schedule, uniform_costs(2, 2, 2, message));
        EXPECT_DOUBLE_EQ(step.makespan, expected.makespan);
        EXPECT_DOUBLE_EQ(step.bubble_over_ideal(), expected.bubble_over_ideal());
      }
}

// Three units, one micro-batch, zero3: five gathers of half a compute each, for the head stays. In line they add up; prefetched,
// only the first and the reduction after the last backward show.
TEST(StepSimulator, OverlapHidesGathersBehindComputes) {
  StepProgramSpec spec = small_spec(make_1f1b(1, 1), ZeroPreset::kZero3);
  const double compute = 3 * 1 + 3 * 2;
  StepCosts half = costs(0.5);
  spec.overlap = half.overlap = false;
  EXPECT_DOUBLE_EQ(simulate(build_step_programs(spec), half).makespan, compute + 5 * 0.5 + 3 * 0.5);
  spec.overlap = true;
  const StepTimeline overlapped = simulate(build_step_programs(spec), costs(0.5));
  EXPECT_LT(overlapped.makespan, compute + 3 * 0.5);
  EXPECT_GE(overlapped.makespan, compute + 2 * 0.5);
  EXPECT_DOUBLE_EQ(overlapped.compute[0], compute);
}

// A backward that overwrites a gradient buffer waits for the reduction that reads it.
TEST(StepSimulator, ASlowReductionHoldsUpTheNextUseOfItsBuffer) {
  const StepProgramSpec spec = small_spec(make_1f1b(1, 1), ZeroPreset::kZero2);
  const StepCosts slow = {[](int, std::size_t, const Instruction& i) {
                            if (i.kind == InstructionKind::kReduceGradients) return 10.0;
                            return i.kind == InstructionKind::kBackward ? 1.0 : 0.0;
                          },
                          [](int, int) { return 0.0; }};
  // Backwards of head, block, embedding; the third shares its buffer with the first: 1 + 10 (reduce) + 1, then two more reductions.
  EXPECT_DOUBLE_EQ(simulate(build_step_programs(spec), slow).pipeline_span, 12);
}

TEST(StepSimulator, ProgramsThatBlockAreRefused) {
  auto programs = build_step_programs(small_spec(make_1f1b(2, 1), ZeroPreset::kZero1));
  std::erase_if(programs[0].instructions, [](const Instruction& i) { return i.kind == InstructionKind::kSendActivation; });
  EXPECT_THROW(simulate(programs, costs()), InternalError);
}

TEST(TaskEngine, BackgroundTasksQueueAndTheRankGoesOn) {
  Task compute, background, reader;
  compute.seconds = 1;
  background.seconds = 3;
  background.background = true;
  background.gives = 0;
  reader = compute;
  reader.waits[0] = 0;
  Task second = background;
  second.gives = 1;
  const TaskTimeline t = run_tasks({{background, second, compute, reader}}, 2);
  EXPECT_DOUBLE_EQ(t.ranks[0][1].start, 3);
  EXPECT_DOUBLE_EQ(t.ranks[0][2].start, 0);
  EXPECT_DOUBLE_EQ(t.ranks[0][3].start, 3);
}

TEST(TaskEngine, BarrierStartsWithTheLastAndDrainsTheBackground) {
  Task compute, background, barrier;
  compute.seconds = 1;
  background.seconds = 5;
  background.background = true;
  barrier.barrier = 0;
  barrier.seconds = 2;
  const TaskTimeline t = run_tasks({{compute, barrier}, {background, barrier}, {barrier}}, 0, {3});
  for (const auto& rank : t.ranks) {
    EXPECT_DOUBLE_EQ(rank.back().start, 5);
    EXPECT_DOUBLE_EQ(rank.back().end, 7);
  }
}

TEST(TaskEngine, ReportsWhereRanksBlock) {
  Task waiting, fine;
  waiting.waits[0] = 0;
  const TaskTimeline t = run_tasks({{fine, waiting}, {fine}}, 1);
  EXPECT_FALSE(t.complete());
  EXPECT_EQ(t.blocked_at, (std::vector<int>{1, Task::kNone}));
}

}  // namespace
}  // namespace trident
