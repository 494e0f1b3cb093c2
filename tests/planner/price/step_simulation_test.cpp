// A step's simulator by hand: streams of a rank that slow each other down, messages in line on a wire, loops, and the launch gap.
#include "planner/price/step_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "pipeline/schedule/step_program.h"
#include "planner/price/overlapped_streams.h"
#include "planner/price/program_loops.h"
#include "planner/price/step_ops.h"
#include "planner/price/step_price.h"
#include "planner/published/simulated_schedules.h"

namespace trident {
namespace {

// 4 s of compute beside 2 s of communication that is issued with it: 1.5 and 2 times as long while both run. The communication ends
// at 4 with 4/1.5 s of compute done; the rest runs alone.
TEST(OverlappedStreams, BothSidesAreSlowerWhileBothRun) {
  OverlappedStreams streams({1.5, 2}, 1);
  streams.issue_overlapped(2);
  streams.compute(4);
  EXPECT_DOUBLE_EQ(streams.now(), 4 + 4.0 / 3);
  EXPECT_DOUBLE_EQ(streams.end_of(0), 4);
}

// 10 s beside 3 s of compute: 3 x 2 s together, in which 6/4 s of the ten are done; what is left runs alone.
TEST(OverlappedStreams, WhatIsLeftRunsAlone) {
  OverlappedStreams streams({2, 4}, 1);
  streams.issue_overlapped(10);
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

// Three ranks of 2 s each, and two whose 3 s wait for a message that the first sends after 2 s; by hand.
TEST(StepSimulation, RanksTakeSharedCoresInTurns) {
  RankOps alone, first, second;
  alone.ops = {compute(2)};
  const auto makespan = [](const std::vector<RankOps>& ranks, const SharedCores& cores) {
    return simulate(ranks, {3, 1, cores}, {}, Spans::kOff).makespan;
  };
  const std::vector<RankOps> three{alone, alone, alone};
  EXPECT_DOUBLE_EQ(makespan(three, {}), 2);
  EXPECT_DOUBLE_EQ(makespan(three, {3, 1.0 / 3}), 2);
  EXPECT_DOUBLE_EQ(makespan(three, {2, 0.5}), 4);
  EXPECT_DOUBLE_EQ(makespan(three, {1, 1}), 6);
  EXPECT_DOUBLE_EQ(makespan(three, {1, 2}), 12) << "each stands for two";
  EXPECT_DOUBLE_EQ(makespan(three, {3, 0.5}), 3) << "three halves of the cores: the last to begin is 1.5 times as long";
  first.ops = {compute(2), send(true, 1, 0, 0), compute(4)};
  second.ops = {receiving(compute(3), true, 1, 0)};
  EXPECT_DOUBLE_EQ(makespan({first, second, alone}, {}), 6);
  EXPECT_DOUBLE_EQ(makespan({first, second, alone}, {2, 0.5}), 6) << "who waits for a message has no core";
  EXPECT_DOUBLE_EQ(makespan({first, second, alone}, {1, 1}), 11);
  second.ops.push_back(compute(5));
  EXPECT_DOUBLE_EQ(makespan({first, second, alone}, {2, 0.5}), 10);
}

// Work beside computing makes it 1.5 times as long and takes twice as long itself. Rank 0 computes to 2 and then 1.5 s beside 6 s
// of gathering, of which 5.25 s are left; it waits for them until 8.75, computes a second and sends for three. Rank 1 computes one
// second, then waits for rank 0 until 9.75 and for the message until 12.75; it reduces from 14.75 to 18.75, when both update.
TEST(StepSimulation, EverySecondIsCountedWhereItBelongs) {
  const auto update = [] {
    StreamOp op = compute(1);
    op.cause = StreamOp::Cause::kUpdate, op.barrier = StreamOp::Barrier::kNorm;
    return op;
  };
  const auto overlapped = [](double seconds) {
    StreamOp op = compute(seconds);
    op.stream = StreamOp::Stream::kOverlapped;
    return op;
  };
  StreamOp waiting = compute(1);
  waiting.back = 1;
  RankOps first, second;
  first.ops = {compute(2), overlapped(6), compute(1), waiting, send(true, 1, 0, 3), update()};
  second.ops = {compute(1), receiving(compute(2), true, 1, 0), overlapped(4), update()};
  first.most_back = 1;
  const SimulatedStep step = simulate({first, second}, {2, 1}, {1.5, 2}, Spans::kOff);
  const auto expect = [&](std::size_t rank, double data, double message, double bubble, double busy) {
    const RankTimeline& of = step.ranks[rank];
    EXPECT_DOUBLE_EQ(of.data, data) << rank;
    EXPECT_DOUBLE_EQ(of.message, message) << rank;
    EXPECT_DOUBLE_EQ(of.bubble, bubble) << rank;
    EXPECT_DOUBLE_EQ(of.busy, busy) << rank;
    EXPECT_DOUBLE_EQ(of.update, 1) << rank;
    EXPECT_DOUBLE_EQ(of.end, 19.75) << rank;
  };
  expect(0, 0.5 + 5.25, 0, 9, 4.5);
  expect(1, 4, 3, 8.75, 3);
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

// Loops of step programs: a program of few micro-batches with its loops is the one of many, whatever the schedule, those among them
// that split backwards; and a stretch that is alike by accident is no loop.

// Stages of 1, 2, 3, 1, 2, 3, ... units.
UnitsOfStage uneven_units(int stages) {
  UnitsOfStage units;
  int next = 0;
  for (int stage = 0; stage < stages; ++stage) {
    auto& of_stage = units.emplace_back();
    for (int i = 0; i <= stage % 3; ++i) of_stage.push_back(next++);
  }
  return units;
}

struct Step {
  std::vector<StepProgram> programs;               // by rank
  std::vector<std::vector<std::int32_t>> pass_of;  // by rank and instruction
};

// Passes by kind, unit and whether they overwrite.
std::int32_t pass_of(const Instruction& i) { return 40 * (i.unit + 1) + 2 * static_cast<int>(i.kind) + (i.overwrites() ? 1 : 0); }

// No two passes are the same.
std::vector<double> seconds_of_passes(int units) {
  std::vector<double> seconds;
  for (int pass = 0; pass < 40 * (units + 1); ++pass) {
    const auto kind = static_cast<InstructionKind>(pass % 40 / 2);
    const bool update = kind == InstructionKind::kOptimizerStep || kind == InstructionKind::kGradNorm;
    seconds.push_back((update ? 0.1 : 1.0) * (1 + (pass * 37 % 101) / 101.0));
  }
  return seconds;
}

StepProgramSpec spec_of(const Schedule& schedule, ZeroPreset zero, bool overlap) {
  StepProgramSpec spec;
  spec.schedule = schedule;
  spec.units_of_stage = uneven_units(schedule.num_virtual_stages());
  spec.zero = policy_of(zero);
  spec.data_parallel = 2;
  spec.overlap = overlap;
  return spec;
}

constexpr bool kOverlapped = true;

Step step_of(const Schedule& schedule, ZeroPreset zero, bool overlap) {
  Step step;
  for (const StepProgram& program : build_step_programs(spec_of(schedule, zero, overlap))) {
    step.programs.push_back(without_receives(program).program);
    auto& passes = step.pass_of.emplace_back();
    for (const Instruction& i : step.programs.back().instructions) passes.push_back(pass_of(i));
  }
  return step;
}

struct Run {
  SimulatedStep times;
  std::vector<std::vector<std::int64_t>> computes;  // by rank and pass
};

Run run(const Step& step, const std::vector<ProgramLoops>& loops, int stages, int micro_batches, bool overlap) {
  const std::vector<double> seconds = seconds_of_passes(static_cast<int>(step.programs.front().unit_bytes.size()));
  std::vector<RankOps> ranks;
  for (std::size_t rank = 0; rank < step.programs.size(); ++rank)
    ranks.push_back(make_rank_ops({step.programs[rank], step.pass_of[rank], seconds, overlap, loops[rank], Spans::kOff}));
  Run run{simulate(ranks, {stages, micro_batches}, {1.25, 1.4}, Spans::kOff), {}};
  for (const RankOps& rank : ranks) run.computes.push_back(rank.computes);
  return run;
}

void expect_same(const SimulatedStep& few, const SimulatedStep& all, const std::string& what) {
  const double near = 1e-11 * all.makespan;
  EXPECT_NEAR(few.makespan, all.makespan, near) << what;
  for (std::size_t rank = 0; rank < all.ranks.size(); ++rank) {
    const RankTimeline &a = few.ranks[rank], &b = all.ranks[rank];
    for (const auto part : {&RankTimeline::end, &RankTimeline::data, &RankTimeline::message, &RankTimeline::bubble,
                            &RankTimeline::update, &RankTimeline::busy, &RankTimeline::first, &RankTimeline::last})
      EXPECT_NEAR(a.*part, b.*part, near) << what << ", rank " << rank;
  }
}

using ScheduleOf = std::function<Schedule(int micro_batches)>;

// Returns how many ranks have loops; where one has none, nothing was compared.
int expect_loops(const ScheduleOf& schedule_of, ZeroPreset zero, bool overlap, int few, int turn, int more,
                 const std::string& what) {
  const Schedule longer = schedule_of(few + more);
  const Step shorter = step_of(schedule_of(few), zero, overlap), all = step_of(longer, zero, overlap);
  std::vector<ProgramLoops> loops;
  for (std::size_t rank = 0; rank < shorter.programs.size(); ++rank) {
    loops.push_back(find_loops(shorter.programs[rank], shorter.pass_of[rank], turn, more));
    if (loops.back().empty()) return 0;
    EXPECT_TRUE(is_unrolled(all.programs[rank], shorter.programs[rank], loops.back())) << what << ", rank " << rank;
    const std::vector<std::int32_t> from = unrolled(shorter.programs[rank], loops.back());
    std::vector<std::int32_t> passes;
    for (const std::int32_t at : from) passes.push_back(shorter.pass_of[rank][static_cast<std::size_t>(at)]);
    EXPECT_EQ(passes, all.pass_of[rank]) << what << ", rank " << rank;
  }
  if (::testing::Test::HasFailure()) return 0;  // ranks of such programs may wait for each other
  const std::vector<ProgramLoops> none(all.programs.size());
  const Run looped = run(shorter, loops, longer.num_virtual_stages(), few + more, overlap);
  const Run written = run(all, none, longer.num_virtual_stages(), few + more, overlap);
  expect_same(looped.times, written.times, what);
  EXPECT_EQ(looped.computes, written.computes) << what;
  return static_cast<int>(loops.size());
}

// gpipe's last backward and the one before it were once enough to make the last micro-batch's reductions part of a loop.
TEST(ProgramLoops, OfEveryTrainedScheduleAreThoseOfTheLongerProgram) {
  int found = 0, ranks = 0;
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::k1f1b, ScheduleKind::kInterleaved})
    for (const int p : {1, 2, 3, 5, 9, 12})
      for (const int v : {1, 2, 3})
        for (const ZeroPreset zero : {ZeroPreset::kDdp, ZeroPreset::kZero2, ZeroPreset::kZero3})
          for (const bool overlap : {true, false}) {
            if ((kind == ScheduleKind::kInterleaved) != (v > 1)) continue;
            const std::int64_t every = policy_of(zero).grad_sync_every;
            const int all = kind == ScheduleKind::kInterleaved ? 7 * p : 5 * p + 12;
            const int few = short_micro_batches(kind, p, every, all);
            if (few == all) continue;
            const std::string what = std::string(to_string(kind)) + " of " + std::to_string(p) + " x " + std::to_string(v) + ", " +
                                     std::string(to_string(zero)) + (overlap ? "" : ", no overlap");
            found += expect_loops([&](int m) { return make_schedule(kind, p, v, m); }, zero, overlap, few,
                                  loop_turn(kind, p, every), all - few, what);
            ranks += p;
          }
  EXPECT_GT(found, ranks * 3 / 4);  // gpipe's transient gradients change places from one micro-batch to the next
}

TEST(ProgramLoops, OfSchedulesThatSplitBackwards) {
  int found = 0;
  for (const SimulatedKind kind : {SimulatedKind::kZbH1, SimulatedKind::kZbH2})
    for (const int p : {1, 2, 3, 4, 9})
      for (const ZeroPreset zero : {ZeroPreset::kDdp, ZeroPreset::kZero1})
        for (const bool overlap : {true, false}) {
          const auto schedule_of = [&](int m) {
            return make_simulated_schedule(kind, p, 1, m, PassTimes{1, 1, 1, 0}).placed.schedule;
          };
          const std::string what = std::string(to_string(kind)) + " of " + std::to_string(p) + ", " + std::string(to_string(zero));
          // Weight gradients lag at most 2(p-1) micro-batches behind, and as many forwards are ahead.
          found += expect_loops(schedule_of, zero, overlap, 4 * p + 6, 1, 23, what);
          if (::testing::Test::HasFailure()) return;
        }
  EXPECT_EQ(found, 2 * 2 * 2 * (1 + 2 + 3 + 4 + 9));
}

// A program that does not repeat itself has no loops: passes that are another's each time, and one turn written but once.
TEST(ProgramLoops, NothingIsFoundWhereNothingRepeats) {
  Step step = step_of(make_1f1b(3, 12), ZeroPreset::kDdp, kOverlapped);
  ASSERT_FALSE(find_loops(step.programs[1], step.pass_of[1], 1, 5).empty());
  std::vector<std::int32_t> numbered(step.pass_of[1].size());
  for (std::size_t at = 0; at < numbered.size(); ++at) numbered[at] = static_cast<std::int32_t>(at);
  EXPECT_TRUE(find_loops(step.programs[1], numbered, 1, 5).empty());
  for (const int m : {1, 2}) {
    step = step_of(make_gpipe(2, m), ZeroPreset::kDdp, kOverlapped);
    for (std::size_t rank = 0; rank < 2; ++rank)
      EXPECT_TRUE(find_loops(step.programs[rank], step.pass_of[rank], 1, 5).empty()) << m;
  }
}

TEST(ProgramsForPricing, AreTheProgramsWithoutReceives) {
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::k1f1b, ScheduleKind::kInterleaved})
    for (const int p : {1, 2, 3, 9})
      for (const ZeroPreset zero : {ZeroPreset::kDdp, ZeroPreset::kZero2, ZeroPreset::kShardGradOp, ZeroPreset::kZero3})
        for (const bool overlap : {true, false}) {
          const Schedule schedule = make_schedule(kind, p, kind == ScheduleKind::kInterleaved ? 3 : 1, 2 * p);
          const StepProgramSpec spec = spec_of(schedule, zero, overlap);
          const std::vector<StepProgram> run = build_step_programs(spec), priced = build_programs_for_pricing(spec);
          ASSERT_EQ(run.size(), priced.size());
          for (std::size_t rank = 0; rank < run.size(); ++rank)
            EXPECT_EQ(without_receives(run[rank]).program.instructions, priced[rank].instructions) << to_text(run[rank]);
        }
}

// Tests what parts of a step are called: each by words of its own.

TEST(TimePartWords, AreThereForEachPartAndAreItsOwn) {
  std::set<std::string_view> names, titles, meanings, causes;
  for (std::size_t part = 0; part < kNumTimeParts; ++part) {
    const TimePartWords& words = part_words(static_cast<TimePart>(part));
    EXPECT_EQ(to_string(static_cast<TimePart>(part)), words.name);
    EXPECT_TRUE(names.insert(words.name).second) << words.name;
    EXPECT_TRUE(titles.insert(words.title).second) << words.title;
    EXPECT_TRUE(meanings.insert(words.meaning).second) << words.meaning;
    EXPECT_TRUE(causes.insert(words.cause).second) << words.cause;
  }
  for (const auto& all : {names, titles, meanings, causes}) EXPECT_FALSE(all.contains(""));
  EXPECT_EQ(part_words(TimePart::kTensor).name, "tp");
  EXPECT_EQ(part_words(TimePart::kBubble).cause, "the pipeline's bubble");
  EXPECT_EQ(part_words(TimePart::kLaunch).title, "launch gaps");
  EXPECT_EQ(part_words(TimePart::kOther).meaning, "work of no other part");
}

}  // namespace
}  // namespace trident
