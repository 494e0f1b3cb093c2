#include "pipeline/schedule/step_simulator.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "pipeline/schedule/schedule_simulator.h"
#include "pipeline/schedule/task_engine.h"
#include "tests/pipeline/step_program_fixture.h"

namespace trident {
namespace {

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
