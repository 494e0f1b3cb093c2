// Broken step programs are rejected, with the reason and the place.
#include "pipeline/schedule/step_program_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "core/check.h"
#include "tests/pipeline/step_program_fixture.h"
#include "tests/support/split_schedules.h"

namespace trident {
namespace {

using Programs = std::vector<StepProgram>;

std::string fault_of(const Programs& programs, const StepProgramSpec& spec) {
  try {
    check_step_programs(programs, spec);
  } catch (const InternalError& e) {
    return e.what();
  }
  return "none";
}

class StepProgramCheck : public ::testing::Test {
 protected:
  // zero3, interleaved, tied: every kind of instruction but the final gather.
  StepProgramSpec spec_ = small_spec(make_interleaved(2, 2, 2), ZeroPreset::kZero3, EmbeddingTie::kTied);
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
  void rebuild(const StepProgramSpec& spec) {
    spec_ = spec;
    programs_ = build_step_programs(spec_);
  }
  void expect_fault(const std::string& part) const {
    const std::string fault = fault_of(programs_, spec_);
    EXPECT_NE(fault.find(part), std::string::npos) << "expected: " << part << "\nfound: " << fault;
  }
};

TEST_F(StepProgramCheck, ShowsTheInstructionWithAnArrow) {
  erase(0, InstructionKind::kGather, 3);
  EXPECT_EQ(fault_of(programs_, spec_),
            "broken step program: unit 1 is not in place 1\nrank 0, instruction 11:\n"
            "  ... send_act(s0,m0)>1 F(u0,m1)@0 free(u0)@0 gather(u3)@0 F(u1,m1)@1 free(u1)@1 send_act(s0,m1)>1 "
            "recv_act(s2,m0)<1@0 F(u3,m0)@0 ...\n"
            "                                                           ^");
}

TEST_F(StepProgramCheck, DroppedGather) {
  erase(0, InstructionKind::kGather);
  expect_fault("unit 0 is not in place 0");
}

TEST_F(StepProgramCheck, EarlyFreeLeavesAStaleSlot) {
  const auto free = find(0, InstructionKind::kFree);
  std::iter_swap(free, free - 1);  // before its compute
  expect_fault("is not in place");
}

TEST_F(StepProgramCheck, DroppedFree) {
  erase(0, InstructionKind::kFree);
  expect_fault("still holds unit 0");
}

TEST_F(StepProgramCheck, DroppedLastFree) {
  int frees = 0;
  for (const Instruction& i : programs_[1].instructions) frees += i.kind == InstructionKind::kFree;
  erase(1, InstructionKind::kFree, frees - 1);
  expect_fault("is still gathered");
}

TEST_F(StepProgramCheck, WrongPlace) {
  find(0, InstructionKind::kForward)->gather_place = 1;
  expect_fault("unit 0 is not in place 1");
  rebuild(spec_);
  find(0, InstructionKind::kGather)->gather_place = 9;
  expect_fault("no such place");
  rebuild(spec_);
  find(0, InstructionKind::kForward)->gather_place = Instruction::kNone;
  expect_fault("parameters are either resident or in a place");
}

TEST_F(StepProgramCheck, SplitBackwards) {
  StepProgramSpec split = small_spec(testing::gpipe_with_weights_last(2, 2), ZeroPreset::kZero3);
  split.zero.grad_sync_every = 0;
  split.weight_gradient_reads.assign(4, false);
  rebuild(split);
  EXPECT_EQ(fault_of(programs_, spec_), "none");
  programs_[1].kept_slots[0][1] = 0;
  expect_fault("kept slot 0 is still in use");
  programs_[1].kept_slots[0][1] = 2;
  expect_fault("no such kept slot: 2");
  rebuild(split);
  programs_[0].num_kept_slots[0] = 1;
  expect_fault("no such kept slot: 1");
  rebuild(split);
  erase(0, InstructionKind::kBackwardWeight);
  expect_fault("weight gradients follow input gradients, against model order");
  rebuild(split);
  find(0, InstructionKind::kBackwardInput)->kind = InstructionKind::kBackward;
  expect_fault("weight gradients follow input gradients, against model order");
  rebuild(split);
  find(0, InstructionKind::kBackwardInput, 2)->flags = Instruction::kOverwrite;
  expect_fault("the first gradient of the step overwrites, the others add");
  rebuild(split);
  find(0, InstructionKind::kBackwardWeight)->gather_place = 0;
  expect_fault("parameters are either resident or in a place");
  rebuild(split);
  std::swap(*find(0, InstructionKind::kBackwardWeight, 2), *find(0, InstructionKind::kReduceGradients));
  expect_fault("no reduction is due");
}

TEST_F(StepProgramCheck, TwoUnitsInAPlace) {
  find(0, InstructionKind::kGather, 1)->gather_place = 0;
  expect_fault("place 0 still holds unit 0");
}

TEST_F(StepProgramCheck, SwappedSends) {
  auto first = find(0, InstructionKind::kSendActivation), second = find(0, InstructionKind::kSendActivation, 1);
  std::iter_swap(first, second);
  expect_fault("it is not computed yet");
  // In a place where both are computed, the other side receives the wrong one.
  rebuild(small_spec(make_gpipe(2, 2), ZeroPreset::kDdp));
  first = find(0, InstructionKind::kSendActivation), second = find(0, InstructionKind::kSendActivation, 1);
  std::rotate(first, first + 1, second);  // both sends in a row ...
  std::iter_swap(second - 1, second);     // ... the other way round
  expect_fault("another message arrives here");
}

TEST_F(StepProgramCheck, DroppedMessages) {
  erase(0, InstructionKind::kSendActivation);
  expect_fault("kept the activation");
  rebuild(spec_);
  erase(1, InstructionKind::kSendGradient);
  expect_fault("kept the gradient");
  rebuild(spec_);
  erase(1, InstructionKind::kRecvActivation);
  expect_fault("its input was not received");
}

TEST_F(StepProgramCheck, MisdirectedMessages) {
  find(0, InstructionKind::kSendActivation)->peer = 0;
  expect_fault("nobody there waits for it");
  rebuild(spec_);
  find(1, InstructionKind::kRecvActivation)->peer = 1;
  expect_fault("nobody there sends it");
  rebuild(spec_);
  find(1, InstructionKind::kRecvActivation)->receive_slot = 7;
  expect_fault("no such receive buffer");
  rebuild(spec_);
  find(1, InstructionKind::kRecvActivation)->virtual_stage = 2;
  expect_fault("its virtual stage lives on another rank");
}

TEST_F(StepProgramCheck, LateReceivesDeadlockAtRendezvous) {
  // 1F1B without early receives: rank 0 hands over micro-batch 1 while rank 1 hands back the gradient of 0.
  rebuild(small_spec(make_1f1b(2, 3), ZeroPreset::kDdp));
  auto& list = programs_[1].instructions;
  const auto receive = find(1, InstructionKind::kRecvActivation, 1), send = find(1, InstructionKind::kSendGradient);
  ASSERT_LT(receive - list.begin(), send - list.begin());
  std::rotate(receive, receive + 1, send + 1);
  expect_fault("deadlock with channel capacity 0");
}

TEST_F(StepProgramCheck, DroppedReduction) {
  erase(0, InstructionKind::kReduceGradients);
  expect_fault("the first gradient after a reduction overwrites");
  rebuild(small_spec(make_1f1b(2, 2), ZeroPreset::kZero1));
  erase(0, InstructionKind::kReduceGradients);
  expect_fault("a gradient is not reduced");
}

TEST_F(StepProgramCheck, LateReduction) {
  StepProgramSpec spec = small_spec(make_1f1b(1, 1), ZeroPreset::kZero2);
  spec.overlap = Overlap::kOff;  // one gradient buffer
  rebuild(spec);
  const auto reduce = find(0, InstructionKind::kReduceGradients);
  std::iter_swap(reduce, reduce + 1);  // after the backward of the next unit
  expect_fault("its gradient buffer holds an unreduced gradient");
}

TEST_F(StepProgramCheck, ReductionsAtTheWrongPlace) {
  auto reduce = find(0, InstructionKind::kReduceGradients);
  reduce->grad_place ^= 1;
  expect_fault("its gradient is in another buffer");
  rebuild(small_spec(make_1f1b(1, 2), ZeroPreset::kZero1));
  reduce = find(0, InstructionKind::kReduceGradients);
  const Instruction extra = *reduce;
  programs_[0].instructions.insert(reduce + 1, extra);
  expect_fault("there is no new gradient");
  rebuild(spec_);
  programs_[0].instructions.insert(find(0, InstructionKind::kBackward) + 1, extra);
  find(0, InstructionKind::kReduceGradients)->unit = find(0, InstructionKind::kBackward)->unit;
  expect_fault("no reduction is due after micro-batch 0");
  rebuild(spec_);
  find(0, InstructionKind::kReduceGradients)->flags = 0;
  expect_fault("the last reduction follows the last micro-batch");
}

TEST_F(StepProgramCheck, StaleAccumulation) {
  find(0, InstructionKind::kBackward)->flags = 0;
  expect_fault("the first gradient after a reduction overwrites");
  rebuild(spec_);
  find(0, InstructionKind::kBackward)->grad_place = 5;
  expect_fault("no such gradient buffer");
  rebuild(spec_);
  find(0, InstructionKind::kBackward)->grad_place = Instruction::kNone;
  expect_fault("gradients are transient exactly if");
}

TEST_F(StepProgramCheck, TieNormAndSteps) {
  erase(1, InstructionKind::kTieExchange);
  expect_fault("the tied weight's gradients are not exchanged");
  rebuild(spec_);
  auto tie = find(0, InstructionKind::kTieExchange);
  std::iter_swap(tie, tie - 1);
  expect_fault("its gradient is not reduced");
  rebuild(spec_);
  find(0, InstructionKind::kTieExchange)->peer = 0;
  expect_fault("the tied weight is elsewhere");
  rebuild(spec_);
  auto norm = find(0, InstructionKind::kGradNorm);
  std::iter_swap(norm, norm + 1);
  expect_fault("steps before the norm");
  rebuild(spec_);
  erase(0, InstructionKind::kGradNorm);
  expect_fault("steps before the norm");
  rebuild(spec_);
  erase(0, InstructionKind::kOptimizerStep);
  expect_fault("unit 0 made no step");
  rebuild(spec_);
  *find(0, InstructionKind::kOptimizerStep, 1) = *find(0, InstructionKind::kOptimizerStep);
  expect_fault("stepped twice");
}

TEST_F(StepProgramCheck, FinalGathers) {
  rebuild(small_spec(make_1f1b(2, 2), ZeroPreset::kZero1));
  erase(1, InstructionKind::kGather);
  expect_fault("is stale");
  rebuild(spec_);
  auto gather = find(0, InstructionKind::kGather);
  std::iter_swap(gather, gather - 1);
  expect_fault("gathered before its step");
  rebuild(spec_);
  find(0, InstructionKind::kGather, 1)->unit = find(0, InstructionKind::kGather)->unit;
  expect_fault("gathered twice");
  rebuild(small_spec(make_1f1b(2, 2), ZeroPreset::kDdp));
  Instruction extra;
  extra.kind = InstructionKind::kGather;
  extra.unit = 0;
  programs_[0].instructions.push_back(extra);
  expect_fault("nothing is gathered after the update");
}

TEST_F(StepProgramCheck, ActivationSlots) {
  rebuild(small_spec(make_1f1b(2, 2), ZeroPreset::kZero1));
  programs_[0].activation_slots[0][1] = 0;
  expect_fault("activation slot 0 is still in use");
  rebuild(spec_);
  ++programs_[0].num_activation_slots[0];
  expect_fault("2 micro-batches in flight and 3 activation slots; the simulator says 2");
  StepProgramSpec split = small_spec(testing::one_f_one_b_with_weights_last(2, 3), ZeroPreset::kZero1);
  rebuild(split);
  EXPECT_EQ(fault_of(programs_, spec_), "none");
  programs_[1].weight_slots[0][2] = 0;
  expect_fault("weight slot 0 is still in use");
  rebuild(split);
  --programs_[1].num_weight_slots[0];
  expect_fault("no such weight slot: 2");
  rebuild(split);
  ++programs_[1].num_weight_slots[0];
  expect_fault("3 micro-batches in flight and 4 weight slots; the simulator says 3");
  rebuild(split);
  programs_[0].activation_slots[0] = {0, 1, 2};
  expect_fault("no such activation slot: 2");
  rebuild(split);
  programs_[0].activation_slots[0] = {0, 0, 1};
  expect_fault("activation slot 0 is still in use");
}

TEST_F(StepProgramCheck, ProgramsOfTheWrongRanks) {
  std::swap(programs_[0], programs_[1]);
  expect_fault("rank 0 has the program of 1");
  programs_.pop_back();
  expect_fault("1 programs for 2 ranks");
}

TEST_F(StepProgramCheck, AnotherRanksUnit) {
  find(0, InstructionKind::kForward)->unit = spec_.head_unit();
  expect_fault("lives on another rank");
}

// No instruction is redundant: whatever is dropped or doubled, the checker objects.
TEST_F(StepProgramCheck, NothingCanBeDroppedOrDoubled) {
  for (const ZeroPreset preset : kAllPresets) {
    const StepProgramSpec spec = small_spec(make_interleaved(2, 2, 2), preset, EmbeddingTie::kTied);
    const Programs good = build_step_programs(spec);
    for (std::size_t rank = 0; rank < good.size(); ++rank)
      for (std::size_t at = 0; at < good[rank].instructions.size(); ++at) {
        Programs dropped = good, doubled = good;
        auto& list = dropped[rank].instructions;
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
        EXPECT_NE(fault_of(dropped, spec), "none") << to_string(good[rank].instructions[at]);
        auto& twice = doubled[rank].instructions;
        twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(at), Instruction(good[rank].instructions[at]));
        EXPECT_NE(fault_of(doubled, spec), "none") << to_string(good[rank].instructions[at]);
      }
  }
}

// Every number in an instruction matters.
TEST_F(StepProgramCheck, RandomFieldMutantsAreRejected) {
  std::mt19937 random(3);
  spec_.overlap = Overlap::kOff;
  rebuild(spec_);
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
    EXPECT_NE(fault_of(mutant, spec_), "none") << to_string(before) << " -> " << to_string(i);
    ++mutants;
  }
  EXPECT_GT(mutants, 1000);
}

// Neighbours that concern one unit (its gather and compute, compute and free, backward and reduction) have one order.
TEST_F(StepProgramCheck, SwappedNeighboursAreRejectedWhereOneNeedsTheOther) {
  spec_.overlap = Overlap::kOff;
  rebuild(spec_);
  for (std::size_t rank = 0; rank < programs_.size(); ++rank)
    for (std::size_t at = 0; at + 1 < programs_[rank].instructions.size(); ++at) {
      Programs swapped = programs_;
      Instruction &a = swapped[rank].instructions[at], &b = swapped[rank].instructions[at + 1];
      const bool same_unit = a.unit != Instruction::kNone && a.unit == b.unit && a.kind != InstructionKind::kFree;
      std::swap(a, b);
      if (!same_unit) continue;
      EXPECT_NE(fault_of(swapped, spec_), "none") << to_string(b) << " after " << to_string(a);
    }
}

}  // namespace
}  // namespace trident
