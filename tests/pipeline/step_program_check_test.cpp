// Broken step programs are rejected, with the reason and the place.
#include "pipeline/schedule/step_program_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/check.h"
#include "tests/pipeline/step_program_fixture.h"
#include "tests/support/error_text.h"
#include "tests/support/split_schedules.h"

namespace trident {
namespace {

using Programs = std::vector<StepProgram>;

std::string fault_of(const Programs& programs, const StepProgramSpec& spec) {
  return error_of<InternalError>([&] { check_step_programs(programs, spec); });
}

class StepProgramCheck : public ::testing::Test {
 protected:
  using enum InstructionKind;

  // zero3, interleaved, tied: every kind of instruction but the final gather.
  StepProgramSpec spec_ = small_spec(make_interleaved(2, 2, 2), ZeroPreset::kZero3, kTied);
  Programs programs_ = build_step_programs(spec_);

  // The place of the `nth` instruction of `kind` on `rank`.
  std::vector<Instruction>::iterator find(int rank, InstructionKind kind, int nth = 0) {
    auto& list = programs_[static_cast<std::size_t>(rank)].instructions;
    for (auto it = list.begin(); it != list.end(); ++it)
      if (it->kind == kind && nth-- == 0) return it;
    ADD_FAILURE() << "no such instruction";
    return list.begin();
  }
  void erase(int rank, InstructionKind kind, int nth = 0) {
    programs_[static_cast<std::size_t>(rank)].instructions.erase(find(rank, kind, nth));
  }
  // The check says `part` of the programs of spec_ once `change` has changed them.
  template <class F> void expect_fault(const char* part, F change) {
    programs_ = build_step_programs(spec_);
    change();
    EXPECT_PRED2(contains, fault_of(programs_, spec_), part);
  }
};

TEST_F(StepProgramCheck, ShowsTheInstructionWithAnArrow) {
  erase(0, kGather, 3);
  EXPECT_EQ(fault_of(programs_, spec_),
            "broken step program: unit 1 is not in place 1\nrank 0, instruction 11:\n"
            "  ... send_act(s0,m0)>1 F(u0,m1)@0 free(u0)@0 gather(u3)@0 F(u1,m1)@1 free(u1)@1 send_act(s0,m1)>1 "
            "recv_act(s2,m0)<1@0 F(u3,m0)@0 ...\n"
            "                                                           ^");
}

TEST_F(StepProgramCheck, GathersAndFreesHaveOnePlaceEach) {
  expect_fault("unit 0 is not in place 0", [&] { erase(0, kGather); });
  expect_fault("is not in place", [&] { std::iter_swap(find(0, kFree), find(0, kFree) - 1); });  // before its compute
  expect_fault("still holds unit 0", [&] { erase(0, kFree); });
  const auto frees = std::ranges::count(programs_[1].instructions, kFree, &Instruction::kind);
  expect_fault("is still gathered", [&] { erase(1, kFree, static_cast<int>(frees) - 1); });
  expect_fault("unit 0 is not in place 1", [&] { find(0, kForward)->gather_place = 1; });
  expect_fault("no such place", [&] { find(0, kGather)->gather_place = 9; });
  expect_fault("parameters are either resident or in a place", [&] { find(0, kForward)->gather_place = Instruction::kNone; });
  expect_fault("place 0 still holds unit 0", [&] { find(0, kGather, 1)->gather_place = 0; });
}

TEST_F(StepProgramCheck, SplitBackwardsKeepTheirOrderAndSlots) {
  spec_ = small_spec(testing::gpipe_with_weights_last(2, 2), ZeroPreset::kZero3);
  spec_.zero.grad_sync_every = 0;
  spec_.weight_gradient_reads.assign(4, false);
  expect_fault("no error", [] {});
  expect_fault("kept slot 0 is still in use", [&] { programs_[1].kept_slots[0][1] = 0; });
  expect_fault("no such kept slot: 2", [&] { programs_[1].kept_slots[0][1] = 2; });
  expect_fault("no such kept slot: 1", [&] { programs_[0].num_kept_slots[0] = 1; });
  const char* const order = "weight gradients follow input gradients, against model order";
  expect_fault(order, [&] { erase(0, kBackwardWeight); });
  expect_fault(order, [&] { find(0, kBackwardInput)->kind = kBackward; });
  expect_fault("the first gradient of the step overwrites, the others add",
               [&] { find(0, kBackwardInput, 2)->flags = Instruction::kOverwrite; });
  expect_fault("parameters are either resident or in a place", [&] { find(0, kBackwardWeight)->gather_place = 0; });
  expect_fault("no reduction is due", [&] { std::swap(*find(0, kBackwardWeight, 2), *find(0, kReduceGradients)); });
}

TEST_F(StepProgramCheck, MessagesArriveInTheirOrder) {
  expect_fault("it is not computed yet", [&] { std::iter_swap(find(0, kSendActivation), find(0, kSendActivation, 1)); });
  expect_fault("kept the activation", [&] { erase(0, kSendActivation); });
  expect_fault("kept the gradient", [&] { erase(1, kSendGradient); });
  expect_fault("its input was not received", [&] { erase(1, kRecvActivation); });
  expect_fault("nobody there waits for it", [&] { find(0, kSendActivation)->peer = 0; });
  expect_fault("nobody there sends it", [&] { find(1, kRecvActivation)->peer = 1; });
  expect_fault("no such receive buffer", [&] { find(1, kRecvActivation)->receive_slot = 7; });
  expect_fault("its virtual stage lives on another rank", [&] { find(1, kRecvActivation)->virtual_stage = 2; });
  // In a place where both are computed, the other side receives the wrong one.
  spec_ = small_spec(make_gpipe(2, 2), ZeroPreset::kDdp);
  expect_fault("another message arrives here", [&] {
    const auto first = find(0, kSendActivation), second = find(0, kSendActivation, 1);
    std::rotate(first, first + 1, second);  // both sends in a row ...
    std::iter_swap(second - 1, second);     // ... the other way round
  });
}

TEST_F(StepProgramCheck, LateReceivesDeadlockAtRendezvous) {
  // 1F1B without early receives: rank 0 hands over micro-batch 1 while rank 1 hands back the gradient of 0.
  spec_ = small_spec(make_1f1b(2, 3), ZeroPreset::kDdp);
  expect_fault("deadlock with channel capacity 0", [&] {
    const auto receive = find(1, kRecvActivation, 1), send = find(1, kSendGradient);
    ASSERT_LT(receive - send, 0);
    std::rotate(receive, receive + 1, send + 1);
  });
}

TEST_F(StepProgramCheck, ReductionsHaveOnePlaceEach) {
  const char* const overwrites = "the first gradient after a reduction overwrites";
  expect_fault(overwrites, [&] { erase(0, kReduceGradients); });
  expect_fault("its gradient is in another buffer", [&] { find(0, kReduceGradients)->grad_place ^= 1; });
  expect_fault(overwrites, [&] { find(0, kBackward)->flags = 0; });
  expect_fault("no such gradient buffer", [&] { find(0, kBackward)->grad_place = 5; });
  expect_fault("gradients are transient exactly if", [&] { find(0, kBackward)->grad_place = Instruction::kNone; });
  spec_ = small_spec(make_1f1b(2, 2), ZeroPreset::kZero1);
  expect_fault("a gradient is not reduced", [&] { erase(0, kReduceGradients); });
  spec_ = small_spec(make_1f1b(1, 2), ZeroPreset::kZero1);
  expect_fault("there is no new gradient", [&] {
    const auto reduce = find(0, kReduceGradients);
    programs_[0].instructions.insert(reduce + 1, Instruction(*reduce));
  });
  expect_fault("no reduction is due after micro-batch 0", [&] {
    const Instruction extra = *find(0, kReduceGradients);
    programs_[0].instructions.insert(find(0, kBackward) + 1, extra);
    find(0, kReduceGradients)->unit = find(0, kBackward)->unit;
  });
  expect_fault("the last reduction follows the last micro-batch", [&] { find(0, kReduceGradients)->flags = 0; });
  spec_ = small_spec(make_1f1b(1, 1), ZeroPreset::kZero2);
  spec_.overlap = false;  // one gradient buffer
  expect_fault("its gradient buffer holds an unreduced gradient", [&] {
    const auto reduce = find(0, kReduceGradients);
    std::iter_swap(reduce, reduce + 1);  // after the backward of the next unit
  });
}

TEST_F(StepProgramCheck, TheTieTheNormAndTheStepsFollowEachOther) {
  expect_fault("the tied weight's gradients are not exchanged", [&] { erase(1, kTieExchange); });
  expect_fault("its gradient is not reduced", [&] { std::iter_swap(find(0, kTieExchange), find(0, kTieExchange) - 1); });
  expect_fault("the tied weight is elsewhere", [&] { find(0, kTieExchange)->peer = 0; });
  expect_fault("steps before the norm", [&] { std::iter_swap(find(0, kGradNorm), find(0, kGradNorm) + 1); });
  expect_fault("steps before the norm", [&] { erase(0, kGradNorm); });
  expect_fault("unit 0 made no step", [&] { erase(0, kOptimizerStep); });
  expect_fault("stepped twice", [&] { *find(0, kOptimizerStep, 1) = *find(0, kOptimizerStep); });
}

TEST_F(StepProgramCheck, FinalGathersFollowTheirSteps) {
  spec_ = small_spec(make_1f1b(2, 2), ZeroPreset::kZero1);
  expect_fault("is stale", [&] { erase(1, kGather); });
  expect_fault("gathered before its step", [&] { std::iter_swap(find(0, kGather), find(0, kGather) - 1); });
  expect_fault("gathered twice", [&] { find(0, kGather, 1)->unit = find(0, kGather)->unit; });
  spec_ = small_spec(make_1f1b(2, 2), ZeroPreset::kDdp);
  expect_fault("nothing is gathered after the update", [&] {
    Instruction& extra = programs_[0].instructions.emplace_back();
    extra.kind = kGather;
    extra.unit = 0;
  });
}

TEST_F(StepProgramCheck, SlotsAreUsedByOneMicroBatchAtATime) {
  const char* const in_use = "activation slot 0 is still in use";
  spec_ = small_spec(make_1f1b(2, 2), ZeroPreset::kZero1);
  expect_fault(in_use, [&] { programs_[0].activation_slots[0][1] = 0; });
  expect_fault("2 micro-batches in flight and 3 activation slots; the simulator says 2",
               [&] { ++programs_[0].num_activation_slots[0]; });
  spec_ = small_spec(testing::one_f_one_b_with_weights_last(2, 3), ZeroPreset::kZero1);
  expect_fault("no error", [] {});
  expect_fault("weight slot 0 is still in use", [&] { programs_[1].weight_slots[0][2] = 0; });
  expect_fault("no such weight slot: 2", [&] { --programs_[1].num_weight_slots[0]; });
  expect_fault("3 micro-batches in flight and 4 weight slots; the simulator says 3",
               [&] { ++programs_[1].num_weight_slots[0]; });
  expect_fault("no such activation slot: 2", [&] { programs_[0].activation_slots[0] = {0, 1, 2}; });
  expect_fault(in_use, [&] { programs_[0].activation_slots[0] = {0, 0, 1}; });
}

TEST_F(StepProgramCheck, ProgramsBelongToTheirRanks) {
  expect_fault("rank 0 has the program of 1", [&] { std::swap(programs_[0], programs_[1]); });
  expect_fault("1 programs for 2 ranks", [&] { programs_.pop_back(); });
  expect_fault("lives on another rank", [&] { find(0, kForward)->unit = spec_.head_unit(); });
}

// No instruction is redundant: whatever is dropped or doubled, the checker objects.
TEST_F(StepProgramCheck, NothingCanBeDroppedOrDoubled) {
  for (const ZeroPreset preset : kAllPresets) {
    const StepProgramSpec spec = small_spec(make_interleaved(2, 2, 2), preset, kTied);
    const Programs good = build_step_programs(spec);
    for (std::size_t rank = 0; rank < good.size(); ++rank)
      for (std::size_t at = 0; at < good[rank].instructions.size(); ++at) {
        Programs dropped = good, doubled = good;
        auto& list = dropped[rank].instructions;
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
        EXPECT_NE(fault_of(dropped, spec), "no error") << to_string(good[rank].instructions[at]);
        auto& twice = doubled[rank].instructions;
        twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(at), Instruction(good[rank].instructions[at]));
        EXPECT_NE(fault_of(doubled, spec), "no error") << to_string(good[rank].instructions[at]);
      }
  }
}

// Every number in an instruction matters.
TEST_F(StepProgramCheck, RandomFieldMutantsAreRejected) {
  std::mt19937 random(3);
  spec_.overlap = false;
  programs_ = build_step_programs(spec_);
  int mutants = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    Programs mutant = programs_;
    auto& list = mutant[random() % mutant.size()].instructions;
    Instruction& i = list[random() % list.size()];
    const Instruction before = i;
    int* const fields[] = {&i.unit, &i.virtual_stage, &i.micro_batch, &i.peer, &i.gather_place, &i.receive_slot, &i.grad_place};
    int& field = *fields[random() % std::size(fields)];
    if (field == Instruction::kNone) continue;  // not a field of this kind
    field += 1 + static_cast<int>(random() % 3);
    EXPECT_NE(fault_of(mutant, spec_), "no error") << to_string(before) << " -> " << to_string(i);
    ++mutants;
  }
  EXPECT_GT(mutants, 1000);
}

// Neighbours that concern one unit (its gather and compute, compute and free, backward and reduction) have one order.
TEST_F(StepProgramCheck, SwappedNeighboursAreRejectedWhereOneNeedsTheOther) {
  spec_.overlap = false;
  programs_ = build_step_programs(spec_);
  for (std::size_t rank = 0; rank < programs_.size(); ++rank)
    for (std::size_t at = 0; at + 1 < programs_[rank].instructions.size(); ++at) {
      Programs swapped = programs_;
      Instruction &a = swapped[rank].instructions[at], &b = swapped[rank].instructions[at + 1];
      const bool same_unit = a.unit != Instruction::kNone && a.unit == b.unit && a.kind != InstructionKind::kFree;
      std::swap(a, b);
      if (!same_unit) continue;
      EXPECT_NE(fault_of(swapped, spec_), "no error") << to_string(b) << " after " << to_string(a);
    }
}

}  // namespace
}  // namespace trident
