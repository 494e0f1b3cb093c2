// The checker names what is wrong, and agrees with a brute-force executor on thousands of broken schedules.
#include "pipeline/schedule/schedule_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "core/check.h"
#include "pipeline/schedule/channel_check.h"
#include "pipeline/schedule/message_order.h"
#include "pipeline/schedule/schedule_generators.h"
#include "pipeline/schedule/schedule_simulator.h"
#include "pipeline/schedule/step_simulator.h"
#include "pipeline/schedule/task_engine.h"
#include "tests/pipeline/schedule_text.h"
#include "tests/pipeline/step_program_fixture.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

std::string fault_of(const std::string& text) { return find_schedule_fault(parse_schedule(text)).value_or("none"); }

TEST(ScheduleCheck, NamesRankAndAction) {
  EXPECT_EQ(fault_of("p=2 v=1 m=1\n0F0 0B0\n1F0\n"), "rank 1: virtual stage 1 has no backward of micro-batch 0");
  EXPECT_EQ(fault_of("p=2 v=1 m=1\n0B0\n1F0 1B0\n"), "rank 0, action 0 (0B0): its forward has not run");
  EXPECT_EQ(fault_of("p=1 v=1 m=2\n0F0 0B0\n"), "rank 0: virtual stage 0 has no forward of micro-batch 1");
  EXPECT_EQ(fault_of("p=1 v=1 m=1\n0F0 0F0 0B0\n"), "rank 0, action 1 (0F0): duplicate forward");
  EXPECT_EQ(fault_of("p=1 v=1 m=1\n0F0 0B0 0I0\n"), "rank 0, action 2 (0I0): duplicate input gradient");
  EXPECT_EQ(fault_of("p=1 v=1 m=1\n0F0 0B0 0W0\n"), "rank 0, action 2 (0W0): duplicate weight gradient");
  EXPECT_EQ(fault_of("p=1 v=1 m=1\n0F0 0W0 0I0\n"), "rank 0, action 1 (0W0): its input gradient has not run");
  EXPECT_EQ(fault_of("p=1 v=1 m=1\n0F0 0I0\n"), "rank 0: virtual stage 0 has no weight gradient of micro-batch 0");
  EXPECT_EQ(fault_of("p=2 v=1 m=1\n0F0 0B0 1F0\n1B0\n"), "rank 0, action 2 (1F0): virtual stage 1 lives on rank 1");
  EXPECT_EQ(fault_of("p=1 v=1 m=1\n0F0 0B0 1F0\n"), "rank 0, action 2 (1F0): there are 1 virtual stages");
  EXPECT_EQ(fault_of("p=1 v=1 m=1\n0F1 0B0\n"), "rank 0, action 0 (0F1): there are 1 micro-batches");
  EXPECT_EQ(fault_of("p=1 v=1 m=2\n0F0 0F1 0B1 0B0\n"),
            "rank 0, action 3 (0B0): weight gradients run in ascending micro-batch order, and micro-batch 1 came before");
  EXPECT_EQ(fault_of("p=1 v=1 m=2\n0F0 0F1 0I1 0I0 0W0 0W1\n"),
            "rank 0, action 3 (0I0): input gradients run in ascending micro-batch order, and micro-batch 1 came before");
  EXPECT_EQ(fault_of("p=1 v=1 m=2\n0F0 0F1 0I0 0I1 0W1 0W0\n"),
            "rank 0, action 5 (0W0): weight gradients run in ascending micro-batch order, and micro-batch 1 came before");
  Schedule short_of_a_rank = make_1f1b(2, 1);
  short_of_a_rank.ranks.pop_back();
  EXPECT_EQ(find_schedule_fault(short_of_a_rank), "1 rank has actions, p=2");
}

TEST(ScheduleCheck, NamesEveryRankOfADeadlock) {
  EXPECT_EQ(fault_of("p=2 v=2 m=1\n2F0 2B0 0F0 0B0\n1F0 3F0 3B0 1B0\n"),
            "deadlock: rank 0, action 0 (2F0) waits for 1F0; rank 1, action 0 (1F0) waits for 0F0");
  EXPECT_EQ(fault_of("p=2 v=1 m=2\n0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n"),
            "deadlock: rank 0, action 1 (0B0) waits for 1B0; rank 1, action 1 (1F1) waits for 0F1");
}

TEST(ScheduleCheck, AcceptsSplitBackwards) {
  EXPECT_EQ(fault_of("p=2 v=1 m=2\n0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1I0 1F1 1I1 1W0 1W1\n"), "none");
}

TEST(ScheduleCheck, ThrowsWithTheText) {
  EXPECT_NO_THROW(check_schedule(make_1f1b(2, 2)));
  EXPECT_EQ(error_of<InternalError>([&] { check_schedule(parse_schedule("p=1 v=1 m=1\n0B0\n")); }),
            "broken pipeline schedule: rank 0, action 0 (0B0): its forward has not run\np=1 v=1 m=1\n0B0\n");
}

// Says whether a schedule is right without any cleverness: run whatever can run until nothing can.
class BruteForce {
 public:
  explicit BruteForce(const Schedule& s) : s_(s) {}

  bool accepts() {
    std::vector<std::size_t> next(s_.ranks.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < s_.ranks.size(); ++r) {
        if (next[r] == s_.ranks[r].size()) continue;
        const Action& a = s_.ranks[r][next[r]];
        if (a.virtual_stage % s_.num_ranks != static_cast<int>(r) || a.virtual_stage >= s_.num_ranks * s_.num_chunks) return false;
        if (!can_run(a)) continue;
        if (!done_.insert({a.kind, a.virtual_stage, a.micro_batch}).second) return false;
        if (a.kind == ActionKind::kBackward && a.micro_batch != backwards_[a.virtual_stage]++) return false;
        ++next[r];
        moved = true;
      }
    }
    const auto cells = static_cast<std::size_t>(s_.num_ranks * s_.num_chunks * s_.num_micro_batches);
    std::size_t left = 0;
    for (std::size_t r = 0; r < s_.ranks.size(); ++r) left += s_.ranks[r].size() - next[r];
    return left == 0 && done_.size() == 2 * cells;
  }

 private:
  bool done(ActionKind kind, int stage, int mb) const { return done_.count({kind, stage, mb}) > 0; }
  bool can_run(const Action& a) const {
    const int last = s_.num_ranks * s_.num_chunks - 1;
    if (a.kind == ActionKind::kForward)
      return a.virtual_stage == 0 || done(ActionKind::kForward, a.virtual_stage - 1, a.micro_batch);
    return done(ActionKind::kForward, a.virtual_stage, a.micro_batch) &&
           (a.virtual_stage == last || done(ActionKind::kBackward, a.virtual_stage + 1, a.micro_batch));
  }

  const Schedule& s_;
  std::set<std::tuple<ActionKind, int, int>> done_;
  std::map<int, int> backwards_;
};

std::vector<Action>& random_rank(Schedule& s, std::mt19937& random) {
  for (;;) {
    auto& actions = s.ranks[random() % s.ranks.size()];
    if (!actions.empty()) return actions;
  }
}

// One random change: drop, duplicate, swap, another stage, another micro-batch, the other pass, another rank.
void mutate(Schedule& s, std::mt19937& random) {
  auto& actions = random_rank(s, random);
  const std::size_t at = random() % actions.size(), other = random() % actions.size();
  const auto position = actions.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random() % 8) {
    case 0: actions.erase(position); break;
    case 1: actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(other), Action(*position)); break;
    case 2: std::swap(actions[at], actions[other]); break;
    case 3: std::swap(actions[at], actions[std::min(at + 1, actions.size() - 1)]); break;
    case 4: position->virtual_stage = static_cast<int>(random() % static_cast<unsigned>(s.num_virtual_stages() + 1)); break;
    case 5: position->micro_batch = static_cast<int>(random() % static_cast<unsigned>(s.num_micro_batches)); break;
    case 6: position->kind = position->kind == ActionKind::kForward ? ActionKind::kBackward : ActionKind::kForward; break;
    case 7: {
      const Action moved = *position;
      actions.erase(position);
      s.ranks[random() % s.ranks.size()].push_back(moved);
      break;
    }
  }
}

TEST(ScheduleCheck, AgreesWithBruteForceOnRandomMutants) {
  std::mt19937 random(20261121);
  int accepted = 0, rejected = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    const int p = 1 + static_cast<int>(random() % 3), v = 1 + static_cast<int>(random() % 2);
    const int m = 1 + static_cast<int>(random() % 4);
    Schedule s = trial % 3 == 0 ? make_gpipe(p, m) : trial % 3 == 1 ? make_1f1b(p, m) : make_interleaved(p, v, p);
    for (unsigned changes = 1 + random() % 2; changes > 0; --changes) mutate(s, random);
    if (s.forward_only()) continue;  // a different contract; see Generators.CheckerAcceptsAll
    const bool right = BruteForce(s).accepts();
    const auto fault = find_schedule_fault(s);
    ASSERT_EQ(!fault.has_value(), right) << fault.value_or("accepted") << '\n' << to_text(s);
    ++(right ? accepted : rejected);
  }
  EXPECT_GT(accepted, 200);  // harmless swaps: the checker must not be needlessly strict
  EXPECT_GT(rejected, 2000);
}

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
      std::map<std::tuple<int, int, MessageKind>, std::vector<Message>> sent, received;  // by channel
      for (const auto& items : woven)
        for (const auto& item : items) {
          if (item.kind == WovenItem::Kind::kAction) continue;
          auto& list = item.kind == WovenItem::Kind::kSend ? sent : received;
          list[{source_rank(schedule, item.message), destination_rank(schedule, item.message), item.message.kind}].push_back(
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
        const StepProgramSpec spec = small_spec(schedule, preset, EmbeddingTie::kTied, 2);
        const StepTimeline step = simulate(build_step_programs(spec), equal_stages(spec, message), Overlap::kOn);
        const ScheduleTimeline expected = simulate(schedule, uniform_costs(2, 2, 2, message));
        EXPECT_DOUBLE_EQ(step.makespan, expected.makespan);
        EXPECT_DOUBLE_EQ(step.bubble_over_ideal(), expected.bubble_over_ideal());
        EXPECT_DOUBLE_EQ(step.bubble_rate(), expected.bubble_rate());
      }
}

// Three units, one micro-batch, zero3: five gathers of half a compute each, for the head stays. In line they add up; prefetched,
// only the first and the reduction after the last backward show.
TEST(StepSimulator, OverlapHidesGathersBehindComputes) {
  StepProgramSpec spec = small_spec(make_1f1b(1, 1), ZeroPreset::kZero3);
  const double compute = 3 * 1 + 3 * 2;
  spec.overlap = Overlap::kOff;
  EXPECT_DOUBLE_EQ(simulate(build_step_programs(spec), costs(0.5), Overlap::kOff).makespan, compute + 5 * 0.5 + 3 * 0.5);
  spec.overlap = Overlap::kOn;
  const StepTimeline overlapped = simulate(build_step_programs(spec), costs(0.5), Overlap::kOn);
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
  EXPECT_DOUBLE_EQ(simulate(build_step_programs(spec), slow, Overlap::kOn).pipeline_span, 12);
}

TEST(StepSimulator, ProgramsThatBlockAreRefused) {
  auto programs = build_step_programs(small_spec(make_1f1b(2, 1), ZeroPreset::kZero1));
  std::erase_if(programs[0].instructions, [](const Instruction& i) { return i.kind == InstructionKind::kSendActivation; });
  EXPECT_THROW(simulate(programs, costs(), Overlap::kOn), InternalError);
}

TEST(TaskEngine, BackgroundTasksQueueAndTheRankGoesOn) {
  Task compute, background, reader;
  compute.seconds = 1;
  background.seconds = 3;
  background.lane = Lane::kBackground;
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
  background.lane = Lane::kBackground;
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
