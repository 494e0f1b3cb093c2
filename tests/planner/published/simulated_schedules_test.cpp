// Schedules that are simulated: complete and in order, with the bubbles and the memory of the papers; the trainer's own as
// pipeline's simulator has them.
#include "planner/published/simulated_schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "core/check.h"
#include "pipeline/schedule/schedule_generators.h"
#include "tests/pipeline/step_program_fixture.h"

namespace trident {
namespace {

constexpr PassTimes kEqual{1, 1, 1, 0};
constexpr PassTimes kUneven{1.1, 1.3, 0.7, 0.25};

double bubble(SimulatedKind kind, int p, int m, const PassTimes& times = kEqual) {
  const ScheduleTimeline timeline = simulate(make_simulated_schedule(kind, p, is_v_shaped(kind) ? 2 : 1, m, times).placed, times);
  return timeline.largest_span - timeline.mean_busy;
}

TEST(SimulatedSchedules, TheTrainersOwnAreWhatPipelineSimulates) {
  const auto compare = [](const Schedule& schedule) {
    const ScheduleTimeline here = simulate(usual_placement(schedule), kUneven);
    const ScheduleTimeline there =
        simulate(schedule, uniform_costs(kUneven.forward, kUneven.backward_input, kUneven.backward_weight, kUneven.message));
    ASSERT_EQ(here.ranks.size(), there.ranks.size());
    for (std::size_t rank = 0; rank < here.ranks.size(); ++rank)
      for (std::size_t i = 0; i < here.ranks[rank].size(); ++i)
        ASSERT_NEAR(here.ranks[rank][i].end, there.ranks[rank][i].end, 1e-9) << to_text(schedule);
    EXPECT_NEAR(here.mean_busy, there.mean_busy, 1e-9);
    EXPECT_NEAR(here.largest_span, there.largest_span, 1e-9);
  };
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m) {
      compare(make_gpipe(p, m));
      compare(make_1f1b(p, m));
      for (int v = 2; v <= 4; ++v)
        if (m % p == 0) compare(make_interleaved(p, v, m));
    }
}

// Stages that cost differently: as pipeline's simulator has them, and with what split backwards gain only where ranks wait.
TEST(SimulatedSchedules, StagesMayCostDifferently) {
  for (const int p : {2, 4, 8}) {
    std::vector<PassTimes> times;
    for (int stage = 0; stage < p; ++stage) times.push_back({1 + 0.1 * stage, 1.3 - 0.05 * stage, 0.7, 0.25 + 0.01 * stage});
    times.back() = {2.5, 2.6, 1.9, 0};  // the head
    const int m = 3 * p;
    const ScheduleCosts costs{[&](int, const Action& a) {
                                const PassTimes& t = times[static_cast<std::size_t>(a.virtual_stage)];
                                if (a.kind == ActionKind::kForward) return t.forward;
                                if (a.kind == ActionKind::kBackwardInput) return t.backward_input;
                                if (a.kind == ActionKind::kBackwardWeight) return t.backward_weight;
                                return t.backward_input + t.backward_weight;
                              },
                              [&](int from, int) { return times[static_cast<std::size_t>(from)].message; }};
    double of_1f1b = 0;
    for (const SimulatedKind kind :
         {SimulatedKind::k1f1b, SimulatedKind::kZbH1, SimulatedKind::kZbH2, SimulatedKind::kZb1p, SimulatedKind::kZb2p}) {
      const PlacedSchedule placed = make_simulated_schedule(kind, p, 1, m, times).placed;
      const ScheduleTimeline here = simulate(placed, times), there = simulate(placed.schedule, costs);
      EXPECT_NEAR(here.makespan, there.makespan, 1e-9) << to_string(kind);
      EXPECT_NEAR(here.largest_span, there.largest_span, 1e-9) << to_string(kind);
      EXPECT_NEAR(here.mean_busy, there.mean_busy, 1e-9) << to_string(kind);
      EXPECT_GE(here.largest_span, m * (2.5 + 2.6 + 1.9) - 1e-9) << "the head's rank works all the time, at least";
      if (kind == SimulatedKind::k1f1b) of_1f1b = here.largest_span;
      EXPECT_LE(here.largest_span, of_1f1b + 1e-9) << to_string(kind);
    }
    EXPECT_EQ(
        simulate(make_simulated_schedule(SimulatedKind::kZb2p, p, 1, m, kUneven).placed, kUneven).largest_span,
        simulate(make_simulated_schedule(SimulatedKind::kZb2p, p, 1, m, std::vector(static_cast<std::size_t>(p), kUneven)).placed,
                 std::vector(static_cast<std::size_t>(p), kUneven))
            .largest_span);
  }
}

TEST(SimulatedSchedules, SplitBackwardsAreCompleteInOrderAndDoNotBlock) {
  for (const SimulatedKind kind : {SimulatedKind::kZbH1, SimulatedKind::kZbH2, SimulatedKind::kZb1p, SimulatedKind::kZb2p})
    for (int p = 1; p <= 8; ++p)
      for (int m = 1; m <= 16; ++m) {
        const Schedule schedule = make_simulated_schedule(kind, p, 1, m, kUneven).placed.schedule;
        EXPECT_EQ(fault_of_programs(schedule), "no error") << to_string(kind) << '\n' << to_text(schedule);
      }
}

// Checks any placement as the check of programs does the usual one: each action lies where it should; an input gradient comes
// after its forward and before its weight gradient; ascending order. That nothing blocks, simulate() says.
void expect_complete(const PlacedSchedule& placed) {
  const Schedule& schedule = placed.schedule;
  const int stages = schedule.num_virtual_stages(), m = schedule.num_micro_batches;
  std::vector<std::array<int, 3>> seen(static_cast<std::size_t>(stages), {0, 0, 0});
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (const Action& a : schedule.ranks[rank]) {
      auto& [forward, input, weight] = seen[static_cast<std::size_t>(a.virtual_stage)];
      ASSERT_EQ(placed.rank_of_stage[static_cast<std::size_t>(a.virtual_stage)], static_cast<int>(rank)) << to_text(schedule);
      int& next = a.kind == ActionKind::kForward ? forward : a.kind == ActionKind::kBackwardInput ? input : weight;
      ASSERT_EQ(a.micro_batch, next) << to_string(a) << '\n' << to_text(schedule);
      ++next;
      ASSERT_TRUE(forward >= input && input >= weight) << to_string(a) << '\n' << to_text(schedule);
    }
  for (const auto& stage : seen) EXPECT_EQ(stage, (std::array<int, 3>{m, m, m})) << to_text(schedule);
}

TEST(SimulatedSchedules, VShapesAreCompleteInOrderAndDoNotBlock) {
  for (const SimulatedKind kind : {SimulatedKind::kZbV, SimulatedKind::kVHalf, SimulatedKind::kVMin})
    for (int p = 1; p <= 9; ++p)
      for (int m = 1; m <= 20; ++m) {
        SCOPED_TRACE(fmt::format("{} p={} m={}", to_string(kind), p, m));
        const PlacedSchedule placed = make_simulated_schedule(kind, p, 2, m, kUneven).placed;
        expect_complete(placed);
        simulate(placed, kUneven);
      }
}

// (p-1)(F+I-W) and (p-1)(F+I-2W), whatever the times; nothing where that is negative is claimed.
TEST(SimulatedSchedules, ZeroBubblesFollowTheirFormulas) {
  for (const int p : {2, 4, 8, 16})
    for (const int m : {2 * p, 3 * p, 3 * p + 1}) {
      for (const PassTimes times : {kEqual, PassTimes{1.2, 1.0, 0.8, 0}, PassTimes{1, 1, 0.5, 0}}) {
        const double both = times.forward + times.backward_input;
        EXPECT_NEAR(bubble(SimulatedKind::kZbH1, p, m, times), (p - 1) * (both - times.backward_weight), 1e-9) << p << ' ' << m;
        EXPECT_NEAR(bubble(SimulatedKind::kZbH2, p, m, times), (p - 1) * (both - 2 * times.backward_weight), 1e-9) << p << ' ' << m;
      }
    }
}

TEST(SimulatedSchedules, MemoryIsThePapers) {
  for (const int p : {2, 4, 8, 16, 32}) {
    const int m = 3 * p;
    const auto peak = [&](SimulatedKind kind) {
      const SimulatedSchedule made = make_simulated_schedule(kind, p, is_v_shaped(kind) ? 2 : 1, m, kEqual);
      return peak_activations(made.placed.schedule, made.weight_share);
    };
    EXPECT_EQ(peak(SimulatedKind::k1f1b), p);
    EXPECT_EQ(peak(SimulatedKind::kGpipe), m);
    EXPECT_EQ(peak(SimulatedKind::kZbH1), p);
    EXPECT_EQ(peak(SimulatedKind::kZbH2), 2 * p - 1);
    EXPECT_LE(peak(SimulatedKind::kZb1p), p + 1e-9);
    EXPECT_LE(peak(SimulatedKind::kZb2p), 2 * p + 1e-9);
    // In halves of a stage.
    EXPECT_EQ(peak(SimulatedKind::kZbV), 2 * p);
    EXPECT_LE(peak(SimulatedKind::kVHalf), p + 3);
    EXPECT_LE(peak(SimulatedKind::kVMin), (2 * p + 2) / 3 + 4);
  }
}

// Equal times: none for zb-v; at most half of 1f1b's 3(p-1) whole passes and a little for v-half, two thirds and a little for
// v-min.
TEST(SimulatedSchedules, VShapedBubblesAreThePublishedOnes) {
  for (const int p : {2, 4, 6, 8, 16, 32}) {
    const int m = 3 * p;
    const double of_1f1b = 6.0 * (p - 1);  // in passes of half a stage
    EXPECT_NEAR(bubble(SimulatedKind::kZbV, p, m), 0, 1e-9) << p;
    EXPECT_LE(bubble(SimulatedKind::kVHalf, p, m), of_1f1b / 2 + 1) << p;
    EXPECT_LE(bubble(SimulatedKind::kVMin, p, m), 2 * of_1f1b / 3 + 4) << p;
    EXPECT_GT(bubble(SimulatedKind::kVMin, p, m), bubble(SimulatedKind::kVHalf, p, m) - 1e-9) << p;
  }
}

TEST(SimulatedSchedules, ASearchFindsNothingWorseThanTheFixedOrders) {
  for (const PassTimes& times : {kEqual, kUneven, PassTimes{18.5, 18.1, 9.3, 0.6}})
    for (const int p : {4, 8, 16}) {
      EXPECT_LE(bubble(SimulatedKind::kZb1p, p, 3 * p, times), bubble(SimulatedKind::kZbH1, p, 3 * p, times) + 1e-9);
      EXPECT_LE(bubble(SimulatedKind::kZb2p, p, 3 * p, times), bubble(SimulatedKind::kZbH2, p, 3 * p, times) + 1e-9);
    }
}

TEST(SimulatedSchedules, NamesAndRefusals) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-1p", "zb-2p", "zb-v", "v-half", "v-min"})
    EXPECT_EQ(to_string(parse_simulated_kind(name).value()), name);
  EXPECT_EQ(parse_simulated_kind("1f1b-interleaved"), SimulatedKind::kInterleaved);
  EXPECT_EQ(parse_simulated_kind("interleaved 1f1b"), SimulatedKind::kInterleaved);
  EXPECT_EQ(parse_simulated_kind("dualpipe"), std::nullopt);
  EXPECT_THROW(make_simulated_schedule(SimulatedKind::kZbH1, 4, 2, 8, kEqual), ConfigError);
  EXPECT_THROW(make_simulated_schedule(SimulatedKind::kZbV, 4, 1, 8, kEqual), ConfigError);
  EXPECT_THROW(make_simulated_schedule(SimulatedKind::kInterleaved, 4, 2, 7, kEqual), ConfigError);
}

// A step of 16 pipeline ranks and 128 micro-batches, split backwards: 6,144 instructions in 5 ms of this thread at most. The best
// of twenty, because the machine may be busy.
TEST(SimulatedSchedules, AStepIsSimulatedInMilliseconds) {
  const PlacedSchedule placed = make_simulated_schedule(SimulatedKind::kZbH1, 16, 1, 128, kUneven).placed;
  double best = 1;
  for (int i = 0; i < 20; ++i) {
    timespec begin{}, end{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    simulate(placed, kUneven);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    best = std::min(best, static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec));
  }
  RecordProperty("milliseconds", fmt::format("{:.3f}", best * 1e3));
  EXPECT_LE(best, 0.005 * TRIDENT_SLOWER);
}

}  // namespace
}  // namespace trident
