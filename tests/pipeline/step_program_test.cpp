// Tests what the builder makes of schedules and ZeRO policies.
#include "pipeline/schedule/step_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <span>

#include "core/check.h"
#include "pipeline/schedule/memory_places.h"
#include "pipeline/schedule/schedule_simulator.h"
#include "pipeline/schedule/step_program_check.h"
#include "pipeline/schedule/step_program_lists.h"
#include "tests/pipeline/step_program_fixture.h"
#include "tests/support/error_text.h"
#include "tests/support/split_schedules.h"

namespace trident {
namespace {

// How often each unit of the rank is gathered and reduced in a step: (unit, count), as StepProgram::units.
struct ProgramStats {
  std::vector<std::pair<int, int>> gathers_of_unit, reductions_of_unit;
};

ProgramStats stats_of(const StepProgram& program) {
  ProgramStats stats;
  const auto count = [&](int unit, InstructionKind kind) {
    return static_cast<int>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                          [&](const Instruction& i) { return i.kind == kind && i.unit == unit; }));
  };
  for (const int unit : program.units) {
    stats.gathers_of_unit.emplace_back(unit, count(unit, InstructionKind::kGather));
    stats.reductions_of_unit.emplace_back(unit, count(unit, InstructionKind::kReduceGradients));
  }
  return stats;
}

std::vector<Schedule> small_schedules() {
  std::vector<Schedule> schedules;
  for (int p = 1; p <= 8; p += p < 4 ? 1 : 2) {
    for (const int m : {1, 2, 5}) {
      schedules.push_back(make_gpipe(p, m));
      schedules.push_back(make_1f1b(p, m));
    }
    for (int v = 1; v <= 4; ++v) {
      schedules.push_back(make_interleaved(p, v, p));
      schedules.push_back(make_interleaved(p, v, 3 * p));
      schedules.push_back(make_forward_only(p, v, 5));
    }
  }
  return schedules;
}

int count(const StepProgram& program, InstructionKind kind) {
  return static_cast<int>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                        [&](const Instruction& i) { return i.kind == kind; }));
}

TEST(StepProgram, CheckerAcceptsEverythingTheBuilderMakes) {
  for (const Schedule& schedule : small_schedules())
    for (const ZeroPreset preset : kAllPresets)
      for (const bool tied : {false, true})
        for (const bool overlap : {false, true}) {
          StepProgramSpec spec = small_spec(schedule, preset, tied, 2);
          spec.overlap = overlap;
          const auto programs = build_step_programs(spec);
          ASSERT_NO_THROW(check_step_programs(programs, spec)) << to_text(schedule) << to_text(programs);
        }
}

TEST(StepProgram, EveryOverrideIsLegalWithEveryPreset) {
  for (const ZeroPreset preset : kAllPresets)
    for (const int every : {0, 1, 2, 3, 7})
      for (const ParamGather gather : {ParamGather::kResident, ParamGather::kPerMicroBatch, ParamGather::kPerUse})
        for (const int data_parallel : {1, 3}) {
          StepProgramSpec spec = small_spec(make_interleaved(2, 2, 4), preset, kTied);
          spec.zero.grad_sync_every = every;
          spec.zero.param_gather = gather;
          spec.data_parallel = data_parallel;
          const auto programs = build_step_programs(spec);
          ASSERT_NO_THROW(check_step_programs(programs, spec)) << to_text(programs);
          for (const auto& [unit, reductions] : stats_of(programs[0]).reductions_of_unit)
            EXPECT_EQ(reductions, every == 0 ? 1 : (4 + every - 1) / every);
        }
}

TEST(StepProgram, ProgramsAtTheLargeEndOfThePropertyRange) {
  for (const Schedule& schedule : {make_interleaved(8, 4, 16), make_1f1b(8, 16), make_gpipe(8, 16)}) {
    const StepProgramSpec spec = small_spec(schedule, ZeroPreset::kZero3, kTied);
    EXPECT_NO_THROW(check_step_programs(build_step_programs(spec), spec));
  }
}

TEST(StepProgram, Zero1GathersOnceAfterTheStep) {
  EXPECT_EQ('\n' + to_text(build_step_programs(small_spec(make_1f1b(2, 2), ZeroPreset::kZero1))), R"(
rank 0: F(u0,m0) F(u1,m0) send_act(s0,m0)>1 F(u0,m1) F(u1,m1) send_act(s0,m1)>1 recv_grad(s0,m0)<1@0 B(u1,m0)= B(u0,m0)=
        recv_grad(s0,m1)<1@0 B(u1,m1)+= reduce(u1)! B(u0,m1)+= reduce(u0)! norm step(u0) gather(u0) step(u1) gather(u1)
rank 1: recv_act(s1,m0)<0@0 F(u2,m0) F(u3,m0) recv_act(s1,m1)<0@0 B(u3,m0)= B(u2,m0)= send_grad(s1,m0)>0 F(u2,m1) F(u3,m1)
        B(u3,m1)+= reduce(u3)! B(u2,m1)+= reduce(u2)! send_grad(s1,m1)>0 norm step(u2) gather(u2) step(u3) gather(u3)
)");
}

TEST(StepProgram, DdpGathersNothing) {
  for (const StepProgram& program : build_step_programs(small_spec(make_1f1b(2, 2), ZeroPreset::kDdp)))
    EXPECT_EQ(count(program, InstructionKind::kGather), 0);
}

// The hardest small case, in full.
TEST(StepProgram, InterleavedZero3WithATieIsWrittenOut) {
  const auto programs = build_step_programs(small_spec(make_interleaved(2, 2, 2), ZeroPreset::kZero3, kTied));
  EXPECT_EQ('\n' + to_text(programs), R"(
rank 0: gather(u0)@0 gather(u1)@1 F(u0,m0)@0 free(u0)@0 gather(u0)@0 F(u1,m0)@1 free(u1)@1 send_act(s0,m0)>1 gather(u1)@1
        F(u0,m1)@0 free(u0)@0 gather(u3)@0 F(u1,m1)@1 free(u1)@1 send_act(s0,m1)>1 recv_act(s2,m0)<1@0 F(u3,m0)@0
        recv_act(s2,m1)<1@0 send_act(s2,m0)>1 F(u3,m1)@0 send_act(s2,m1)>1 recv_grad(s2,m0)<1@0 B(u3,m0)@0=g0 reduce(u3)g0
        send_grad(s2,m0)>1 recv_grad(s2,m1)<1@0 gather(u1)@1 B(u3,m1)@0=g0 free(u3)@0 reduce(u3)g0! recv_grad(s0,m0)<1@0
        send_grad(s2,m1)>1 gather(u0)@0 B(u1,m0)@1=g1 free(u1)@1 reduce(u1)g1 gather(u1)@1 B(u0,m0)@0=g0 free(u0)@0 reduce(u0)g0
        recv_grad(s0,m1)<1@0 gather(u0)@0 B(u1,m1)@1=g1 free(u1)@1 reduce(u1)g1! B(u0,m1)@0=g0 free(u0)@0 reduce(u0)g0! tie<>1
        norm step(u0) step(u1) step(u3)
rank 1: recv_act(s1,m0)<0@0 gather(u2)@0 F(u2,m0)@0 recv_act(s1,m1)<0@0 send_act(s1,m0)>0 gather(u4)@1 F(u2,m1)@0 free(u2)@0
        send_act(s1,m1)>0 recv_act(s3,m0)<0@0 gather(u5)@0 F(u4,m0)@1 free(u4)@1 F(u5,m0)@0 recv_act(s3,m1)<0@0 gather(u4)@1
        B(u5,m0)@0=g0 free(u5)@0 reduce(u5)g0 B(u4,m0)@1=g1 reduce(u4)g1 send_grad(s3,m0)>0 gather(u5)@0 F(u4,m1)@1 free(u4)@1
        F(u5,m1)@0 recv_grad(s1,m0)<0@0 gather(u4)@1 B(u5,m1)@0=g0 free(u5)@0 reduce(u5)g0! gather(u2)@0 B(u4,m1)@1=g1
        free(u4)@1 reduce(u4)g1! send_grad(s3,m1)>0 B(u2,m0)@0=g0 reduce(u2)g0 send_grad(s1,m0)>0 recv_grad(s1,m1)<0@0
        B(u2,m1)@0=g0 free(u2)@0 reduce(u2)g0! send_grad(s1,m1)>0 tie<>0 norm step(u2) step(u4) step(u5)
)");
}

TEST(StepProgram, GathersPerStepAreThoseOfTheFormulas) {
  constexpr int m = 6;
  using Counts = std::vector<int>;  // by unit of the rank
  const auto gathers = [](const Schedule& schedule, ZeroPreset preset, int rank) {
    Counts counts;
    const auto programs = build_step_programs(small_spec(schedule, preset));
    const ProgramStats stats = stats_of(programs[static_cast<std::size_t>(rank)]);
    for (const auto& [unit, n] : stats.gathers_of_unit) counts.push_back(n);
    return counts;
  };
  // Twice a micro-batch, but once where a unit's next use follows at once: the last unit's backward after its forward, the first
  // unit's next forward after its backward.
  EXPECT_EQ(gathers(make_1f1b(1, m), ZeroPreset::kZero3, 0), (Counts{m + 1, 2 * m, m}));
  EXPECT_EQ(gathers(make_gpipe(2, m), ZeroPreset::kZero3, 1), (Counts{2 * m, 2 * m - 1}));
  EXPECT_EQ(gathers(make_1f1b(2, m), ZeroPreset::kZero3, 0), (Counts{m + 2, m + 1}));
  EXPECT_EQ(gathers(make_1f1b(1, m), ZeroPreset::kShardGradOp, 0), (Counts{1, m, m}));
  EXPECT_EQ(gathers(make_gpipe(1, m), ZeroPreset::kShardGradOp, 0), (Counts{1, 1, 1}));
  EXPECT_EQ(gathers(make_1f1b(2, m), ZeroPreset::kShardGradOp, 0), (Counts{1, 1}));  // a micro-batch is always in flight
  EXPECT_EQ(gathers(make_1f1b(2, m), ZeroPreset::kShardGradOp, 1), (Counts{1, m}));
  EXPECT_EQ(gathers(make_1f1b(2, m), ZeroPreset::kZero1, 0), (Counts{1, 1}));
  EXPECT_EQ(gathers(make_forward_only(2, 1, m), ZeroPreset::kShardGradOp, 0), (Counts{m, m}));
}

// With a block for every unit a region has as many as are alive at once.
TEST(StepProgram, RegionsAreWhatTheLivenessNeeds) {
  constexpr bool kInTurn = false, kOverlapped = true;
  const auto program = [](ZeroPreset preset, bool overlap, int blocks) {
    StepProgramSpec spec = small_spec(make_1f1b(1, 3), preset, kUntied, blocks);
    spec.overlap = overlap;
    return build_step_programs(spec).front();
  };
  const auto gathered = [&](ZeroPreset preset, bool overlap) { return program(preset, overlap, 4).gather_bytes / kPlaceBytes; };
  const auto gradients = [&](ZeroPreset preset, bool overlap) { return program(preset, overlap, 4).grad_bytes / kPlaceBytes; };
  EXPECT_EQ(gathered(ZeroPreset::kZero3, kInTurn), 1);
  EXPECT_EQ(gathered(ZeroPreset::kZero3, kOverlapped), 2);
  EXPECT_EQ(gathered(ZeroPreset::kShardGradOp, kInTurn), 6);  // all units of a micro-batch in flight
  EXPECT_EQ(gathered(ZeroPreset::kShardGradOp, kOverlapped), 6);
  EXPECT_EQ(gathered(ZeroPreset::kZero1, kOverlapped), 0);
  EXPECT_EQ(gradients(ZeroPreset::kZero2, kInTurn), 1);
  EXPECT_EQ(gradients(ZeroPreset::kZero2, kOverlapped), 2);
  EXPECT_EQ(gradients(ZeroPreset::kZero1, kOverlapped), 0);
}

// Sizes by unit, in blocks; half of each unit is this rank's shard.
StepProgramSpec sized_spec(const Schedule& schedule, ZeroPreset preset, int blocks_per_stage, const std::vector<int>& sizes) {
  StepProgramSpec spec = small_spec(schedule, preset, kUntied, blocks_per_stage);
  for (const int n : sizes) {
    const std::int64_t bytes = n * kPlaceBytes;
    spec.unit_bytes.push_back({.gathered = bytes, .gradients = 2 * bytes, .resident = bytes, .shard = bytes / 2});
  }
  return spec;
}

// One rank, three blocks of 2 between an embedding of 10 and a head of 8: the most that is alive at once is the embedding and the
// block beside it, 12. With the shards, 12 too, that is no less than all of them are; with a block more it is.
TEST(StepProgram, GathersOnUseOnlyWhereItTakesLess) {
  const std::vector<int> even{10, 2, 2, 2, 8}, more{10, 2, 2, 2, 2, 8};
  const StepProgram kept = build_step_programs(sized_spec(make_1f1b(1, 2), ZeroPreset::kZero3, 3, even)).front();
  EXPECT_EQ(kept.gather_bytes, 12 * kPlaceBytes);
  EXPECT_EQ(kept.grad_bytes, 2 * 12 * kPlaceBytes);
  EXPECT_FALSE(kept.gathers_on_use);
  EXPECT_TRUE(kept.gathers_after_update);
  const StepProgram zero2 = build_step_programs(sized_spec(make_1f1b(1, 2), ZeroPreset::kZero2, 3, even)).front();
  EXPECT_EQ(kept.instructions, zero2.instructions);

  const StepProgram gathers = build_step_programs(sized_spec(make_1f1b(1, 2), ZeroPreset::kZero3, 4, more)).front();
  EXPECT_EQ(gathers.gather_bytes, 12 * kPlaceBytes);
  EXPECT_TRUE(gathers.gathers_on_use);
  EXPECT_FALSE(gathers.gathers_after_update);
}

// A rank whose units are all in flight at once has nothing to gain from gathering them; another rank of the same job may have.
TEST(StepProgram, UnitsHeldWhileAMicroBatchIsInFlightAreResident) {
  const std::vector<int> equal{9, 2, 2, 2, 2, 2, 2, 9};
  for (const StepProgram& program : build_step_programs(sized_spec(make_1f1b(2, 4), ZeroPreset::kShardGradOp, 3, equal)))
    EXPECT_FALSE(program.gathers_on_use) << program.rank;
  const auto zero3 = build_step_programs(sized_spec(make_1f1b(2, 4), ZeroPreset::kZero3, 4, {9, 1, 1, 1, 1, 4, 4, 4, 4, 4}));
  EXPECT_FALSE(zero3[0].gathers_on_use);  // 9 + 1 and shards of 6.5 against 13
  EXPECT_TRUE(zero3[1].gathers_on_use);   // 4 + 4 and shards of 10 against 20
}

// The rank's next compute needs the unit again: the head's backward after its forward, the first unit's next forward.
TEST(StepProgram, AUnitStaysForItsNextUse) {
  std::string text;
  const auto programs = build_step_programs(small_spec(make_1f1b(1, 2), ZeroPreset::kZero3));
  for (const Instruction& i : programs.front().instructions)
    if (i.is_compute() || i.kind == InstructionKind::kGather) text += to_string(i) + " ";
  EXPECT_EQ(text, "gather(u0)@0 gather(u1)@1 F(u0,m0)@0 gather(u2)@0 F(u1,m0)@1 F(u2,m0)@0 gather(u1)@1 B(u2,m0)@0=g0 "
                  "gather(u0)@0 B(u1,m0)@1=g1 B(u0,m0)@0=g0 gather(u1)@1 F(u0,m1)@0 gather(u2)@0 F(u1,m1)@1 F(u2,m1)@0 "
                  "gather(u1)@1 B(u2,m1)@0=g0 gather(u0)@0 B(u1,m1)@1=g1 B(u0,m1)@0=g0 ");
}

TEST(StepProgram, ActivationSlotsFollowTheInFlightCount) {
  for (const Schedule& schedule : small_schedules()) {
    const auto programs = build_step_programs(small_spec(schedule, ZeroPreset::kZero1));
    const InFlight peak = max_in_flight(schedule);
    for (int stage = 0; stage < schedule.num_virtual_stages(); ++stage) {
      const StepProgram& program = programs[static_cast<std::size_t>(schedule.rank_of(stage))];
      EXPECT_EQ(program.num_activation_slots[static_cast<std::size_t>(schedule.chunk_of(stage))],
                peak.per_virtual_stage[static_cast<std::size_t>(stage)]);
    }
  }
  const auto programs = build_step_programs(small_spec(make_1f1b(2, 4), ZeroPreset::kZero1));
  EXPECT_EQ(programs[0].activation_slots, (std::vector<std::vector<int>>{{0, 1, 0, 1}}));
  EXPECT_EQ(programs[1].activation_slot(1, 3), 0);
}

TEST(StepProgram, EvaluationReducesAndStepsNothing) {
  for (const ZeroPreset preset : kAllPresets)
    for (const StepProgram& program : build_step_programs(small_spec(make_forward_only(2, 2, 3), preset, kTied))) {
      for (const InstructionKind kind : {InstructionKind::kReduceGradients, InstructionKind::kTieExchange,
                                         InstructionKind::kGradNorm, InstructionKind::kOptimizerStep})
        EXPECT_EQ(count(program, kind), 0);
      EXPECT_EQ(count(program, InstructionKind::kGather), count(program, InstructionKind::kFree));
    }
}

// With windows of two in five micro-batches these backwards overwrite, and reductions fall here.
TEST(StepProgram, SyncWindows) {
  StepProgramSpec spec = small_spec(make_1f1b(1, 5), ZeroPreset::kDdp);
  spec.zero.grad_sync_every = 2;
  std::string text;
  const auto programs = build_step_programs(spec);
  for (const Instruction& i : programs.front().instructions)
    if (i.unit == 1 && (i.kind == InstructionKind::kBackward || i.kind == InstructionKind::kReduceGradients))
      text += to_string(i) + " ";
  EXPECT_EQ(text, "B(u1,m0)= B(u1,m1)+= reduce(u1) B(u1,m2)= B(u1,m3)+= reduce(u1) B(u1,m4)= reduce(u1)! ");
}

TEST(StepProgram, TieWithinOneRankIsLocal) {
  const auto programs = build_step_programs(small_spec(make_1f1b(1, 1), ZeroPreset::kZero1, kTied));
  const auto& list = programs.front().instructions;
  const auto tie =
      std::find_if(list.begin(), list.end(), [](const Instruction& i) { return i.kind == InstructionKind::kTieExchange; });
  ASSERT_NE(tie, list.end());
  EXPECT_EQ(tie->peer, 0);
}

TEST(StepProgram, SplitBackwardsReduceOncePerStep) {
  const Schedule split = parse_schedule("p=2 v=1 m=2\n0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1I0 1F1 1I1 1W0 1W1\n");
  StepProgramSpec spec = small_spec(split, ZeroPreset::kZero3);
  expect_parts(error_of<ConfigError>([&] { build_step_programs(spec); }), {"parallel.grad_sync = every 1: ", "set it to \"step\""});
  spec.zero.grad_sync_every = 0;
  const auto programs = build_step_programs(spec);
  EXPECT_NO_THROW(check_step_programs(programs, spec)) << to_text(programs);
}

// Values that only input gradients read are gone when these have run; those for weight gradients are not.
TEST(StepProgram, ActivationsLastUntilTheirLastUse) {
  const auto slots = [](const Schedule& schedule, std::size_t rank) {
    const StepProgramSpec spec = small_spec(schedule, ZeroPreset::kZero1);
    const auto programs = build_step_programs(spec);
    check_step_programs(programs, spec);
    return std::pair(programs[rank].num_activation_slots[0], programs[rank].num_weight_slots[0]);
  };
  EXPECT_EQ(slots(make_1f1b(2, 5), 0), std::pair(2, 2));
  EXPECT_EQ(slots(testing::one_f_one_b_with_weights_last(2, 5), 0), std::pair(2, 5));
  EXPECT_EQ(slots(testing::one_f_one_b_with_weights_last(2, 5), 1), std::pair(1, 5));
  EXPECT_EQ(slots(testing::gpipe_with_weights_last(2, 5), 0), std::pair(5, 5));
  EXPECT_EQ(slots(make_forward_only(2, 1, 5), 0), std::pair(1, 1));
  const StepProgramSpec spec = small_spec(parse_schedule("p=1 v=1 m=3\n0F0 0I0 0F1 0I1 0W0 0F2 0W1 0I2 0W2\n"), ZeroPreset::kZero1);
  const StepProgram program = build_step_programs(spec)[0];
  EXPECT_EQ(program.activation_slots, (std::vector<std::vector<int>>{{0, 0, 0}}));
  EXPECT_EQ(program.weight_slots, (std::vector<std::vector<int>>{{0, 1, 0}}));
}

TEST(StepProgram, KeptSlotsLastFromInputToWeightGradients) {
  const auto kept = [](const Schedule& schedule) {
    StepProgramSpec spec = small_spec(schedule, ZeroPreset::kZero1);
    const auto programs = build_step_programs(spec);
    check_step_programs(programs, spec);
    return std::pair(programs[0].num_kept_slots, programs[0].kept_slots);
  };
  using Slots = std::vector<int>;
  EXPECT_EQ(kept(make_gpipe(2, 3)).first, Slots{0}) << "not split: they share one area";
  EXPECT_EQ(kept(testing::gpipe_with_weights_last(2, 5)).first, Slots{5});
  const auto two = kept(parse_schedule("p=1 v=1 m=3\n0F0 0F1 0F2 0I0 0I1 0W0 0I2 0W1 0W2\n"));
  EXPECT_EQ(two.first, Slots{2});
  EXPECT_EQ(two.second, (std::vector<Slots>{{0, 1, 0}}));
}

// Reductions follow the last weight gradient; a weight gradient that reads no parameters gathers none.
TEST(StepProgram, WeightGradientsGatherWhatTheyRead) {
  StepProgramSpec spec = small_spec(testing::gpipe_with_weights_last(1, 2), ZeroPreset::kZero3);
  spec.zero.grad_sync_every = 0;
  spec.overlap = false;
  const auto of_unit_1 = [&] {
    const auto programs = build_step_programs(spec);
    check_step_programs(programs, spec);
    std::string text;
    for (const Instruction& i : programs.front().instructions)
      if (i.unit == 1 && i.kind != InstructionKind::kOptimizerStep) text += to_string(i) + " ";
    return text;
  };
  EXPECT_EQ(of_unit_1(),
            "gather(u1)@0 F(u1,m0)@0 free(u1)@0 gather(u1)@0 F(u1,m1)@0 free(u1)@0 "
            "gather(u1)@0 I(u1,m0)@0= free(u1)@0 gather(u1)@0 I(u1,m1)@0+= free(u1)@0 "
            "gather(u1)@0 W(u1,m0)@0= free(u1)@0 gather(u1)@0 W(u1,m1)@0+= free(u1)@0 reduce(u1)! ");
  spec.weight_gradient_reads = {true, false, true};
  EXPECT_EQ(of_unit_1(),
            "gather(u1)@0 F(u1,m0)@0 free(u1)@0 gather(u1)@0 F(u1,m1)@0 free(u1)@0 "
            "gather(u1)@0 I(u1,m0)@0= free(u1)@0 gather(u1)@0 I(u1,m1)@0+= free(u1)@0 "
            "W(u1,m0)= W(u1,m1)+= reduce(u1)! ");
  spec.zero.param_gather = ParamGather::kPerMicroBatch;
  EXPECT_EQ(of_unit_1(),
            "gather(u1)@1 F(u1,m0)@1 F(u1,m1)@1 I(u1,m0)@1= I(u1,m1)@1+= free(u1)@1 W(u1,m0)= W(u1,m1)+= reduce(u1)! ");
}

TEST(Insertions, StandWhereTheyWereAskedForAndNowhereElse) {
  const auto numbered = [](int unit) { return Instruction{.kind = InstructionKind::kForward, .unit = unit}; };
  Instructions list{numbered(0), numbered(1)};
  Insertions insertions;
  insertions.after(1, numbered(5));
  insertions.before(0, numbered(2));
  insertions.after(0, numbered(4));
  insertions.before(0, numbered(3));
  insertions.apply(list);
  std::string units;
  for (const Instruction& i : list) units += static_cast<char>('0' + i.unit);
  EXPECT_EQ(units, "230415");
  for (const bool before : {true, false}) {
    Insertions behind;
    before ? behind.before(6, numbered(7)) : behind.after(6, numbered(7));
    EXPECT_THROW(behind.apply(list), InternalError) << before;
  }
}

TEST(StepProgram, StagesMustFitTheSchedule) {
  StepProgramSpec spec = small_spec(make_1f1b(2, 2), ZeroPreset::kZero1);
  spec.units_of_stage.pop_back();
  EXPECT_THROW(build_step_programs(spec), InternalError);
}

// Places in a region: nothing that lives at one time overlaps, and how much more than the most alive is taken.

using Lifetimes = std::vector<Lifetime>;

bool at_one_time(const Lifetime& a, const Lifetime& b) { return a.begin <= b.end && b.begin <= a.end; }

void expect_valid(const Lifetimes& lifetimes, const Places& places) {
  ASSERT_EQ(places.offsets.size(), lifetimes.size());
  std::int64_t end = 0;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const std::int64_t begin = places.offsets[i];
    ASSERT_GE(begin, 0);
    end = std::max(end, begin + lifetimes[i].bytes);
    for (std::size_t k = 0; k < i; ++k) {
      if (!at_one_time(lifetimes[i], lifetimes[k])) continue;
      const std::int64_t other = places.offsets[k];
      ASSERT_TRUE(begin + lifetimes[i].bytes <= other || other + lifetimes[k].bytes <= begin) << i << ", " << k;
    }
  }
  EXPECT_LE(end, places.bytes);
  EXPECT_GE(places.bytes, most_alive(lifetimes));
}

// The smallest region, by trying every order with every offset at which something could begin.
std::int64_t smallest_region(const Lifetimes& lifetimes) {
  std::set<std::int64_t> sums{0};
  for (const Lifetime& life : lifetimes) {
    const std::set<std::int64_t> before = sums;
    for (const std::int64_t sum : before) sums.insert(sum + life.bytes);
  }
  std::vector<std::int64_t> offsets(lifetimes.size());
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  const std::function<void(std::size_t, std::int64_t)> go = [&](std::size_t i, std::int64_t end) {
    if (end >= best) return;
    if (i == lifetimes.size()) {
      best = end;
      return;
    }
    for (const std::int64_t at : sums) {
      const auto placed = std::span(offsets).first(i);
      const bool free = std::none_of(placed.begin(), placed.end(), [&](const std::int64_t& other) {
        const Lifetime& there = lifetimes[static_cast<std::size_t>(&other - offsets.data())];
        return at_one_time(there, lifetimes[i]) && at < other + there.bytes && other < at + lifetimes[i].bytes;
      });
      if (!free) continue;
      offsets[i] = at;
      go(i + 1, std::max(end, at + lifetimes[i].bytes));
    }
  };
  go(0, 0);
  return best;
}

TEST(MemoryPlaces, NothingTakesNoBytes) {
  EXPECT_EQ(place({}).bytes, 0);
  const Places none = place(Lifetimes{{0, 0, 3}, {0, 1, 1}, {0, 1, 2}});
  EXPECT_EQ(none.bytes, 0);
}

TEST(MemoryPlaces, ALifetimeThatEndsBeforeItBeginsIsABug) {
  EXPECT_THROW(most_alive(Lifetimes{{1, 2, 1}}), InternalError);
  EXPECT_THROW(most_alive(Lifetimes{{-1, 1, 2}}), InternalError);
}

// One lane at the bottom, one at the top: 8 beside 2 is the most that is alive, and the 3s go where there is room.
TEST(MemoryPlaces, PairsTakeTwoLanes) {
  const Lifetimes pairs{{8, 0, 1}, {2, 1, 2}, {3, 2, 3}, {3, 3, 4}, {2, 4, 5}, {8, 5, 6}};
  EXPECT_EQ(most_alive(pairs), 10);
  const Places places = place(pairs);
  expect_valid(pairs, places);
  EXPECT_EQ(places.bytes, 10);
  EXPECT_EQ(places.offsets, (std::vector<std::int64_t>{0, 8, 0, 7, 0, 2}));
}

TEST(MemoryPlaces, WhereNeverMoreThanTwoAreAliveTheyTakeExactlyTheMostAlive) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    Lifetimes lifetimes;
    std::int64_t time = 0;
    for (int i = 0; i < 40; ++i) {  // begins strictly after the one before the last has ended
      const std::int64_t length = static_cast<std::int64_t>(random() % 3);
      lifetimes.push_back({static_cast<std::int64_t>(random() % 9), time, time + length});
      const std::int64_t earliest = lifetimes.size() > 1 ? lifetimes[lifetimes.size() - 2].end + 1 : time;
      time = std::max(time + static_cast<std::int64_t>(random() % 2), earliest);
    }
    const Places places = place(lifetimes);
    expect_valid(lifetimes, places);
    EXPECT_EQ(places.bytes, most_alive(lifetimes));
    EXPECT_EQ(place(lifetimes).offsets, places.offsets);
  }
}

TEST(MemoryPlaces, AreValidAndNearTheSmallest) {
  std::mt19937 random(2);
  int smallest = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    Lifetimes lifetimes;
    for (int i = 0; i < 6; ++i) {
      const auto begin = static_cast<std::int64_t>(random() % 6);
      lifetimes.push_back({1 + static_cast<std::int64_t>(random() % 5), begin, begin + static_cast<std::int64_t>(random() % 4)});
    }
    const Places places = place(lifetimes);
    expect_valid(lifetimes, places);
    const std::int64_t best = smallest_region(lifetimes);
    EXPECT_GE(places.bytes, best);
    EXPECT_LE(2 * places.bytes, 3 * best);
    smallest += places.bytes == best;
  }
  EXPECT_GT(smallest, kTrials * 9 / 10);
}

}  // namespace
}  // namespace trident
