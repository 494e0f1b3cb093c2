#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "device/dry/dry_device.h"
#include "parallel/communicator/dry_communicator.h"
#include "tensor_parallel/unit_plan.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

TEST(LayerGeometryTest, SequenceParallelismSplitsRowsOnlyOverSeveralRanks) {
  LayerGeometry g{.sequence = 12, .micro_batch = 2, .tensor_degree = 4, .tensor_rank = 3, .sequence_parallel = true};
  EXPECT_EQ(g.local_sequence(), 3);
  EXPECT_EQ(g.position_offset(), 9);
  EXPECT_EQ(g.row_offset(), 18);
  EXPECT_EQ(g.activation_shape(5), (Shape{3, 2, 5}));
  g.sequence_parallel = false;
  EXPECT_EQ(g.local_rows(), g.full_rows());
  EXPECT_EQ(g.position_offset(), 0);
  g = {.sequence = 12, .micro_batch = 2, .sequence_parallel = true};
  EXPECT_FALSE(g.shards_sequence());
}

class UnitPlanTest : public ::testing::Test {
 protected:
  DryOps oracle_{nullptr};
};

TEST_F(UnitPlanTest, RegionsGrowAlignedAndScratchIsReused) {
  UnitPlan plan({.sequence = 4, .micro_batch = 1}, oracle_);
  const Saved first{"first", ActivationKind::kNorms, LastUse::kB}, second{"second", ActivationKind::kNorms, LastUse::kB};
  const Saved for_weights{"read by W", ActivationKind::kMlp, LastUse::kW};
  const BetweenIW kept{"kept"};
  plan.run([&](Pass& p) {
    const TensorView a = p.save(first, DType::kF32, {3}), b = p.save(second, DType::kF32, {65});
    EXPECT_EQ(b.data() - a.data(), kArenaAlignment);
    EXPECT_EQ(p.save(first, DType::kF32, {3}).data(), a.data()) << "asked for again, as when it is made again";
    EXPECT_EQ(p[second].data(), b.data());
    p.save(for_weights, DType::kF32, {65});
    p.keep(kept, DType::kBF16, {4});
    p.begin(PassKind::kForward);
    for (int call = 0; call < 2; ++call) {
      const ScratchScope scope(p.scratch_cursor());
      const TensorView one = p.scratch(DType::kF32, {64}), two = p.scratch(DType::kF32, {64});
      EXPECT_EQ(two.data() - one.data(), kArenaAlignment);
    }
  });
  EXPECT_EQ(plan.region_bytes(Region::kSaved), 3 * kArenaAlignment);
  EXPECT_EQ(plan.region_bytes(Region::kSavedForW), 2 * kArenaAlignment);
  EXPECT_EQ(plan.region_bytes(Region::kKept), kArenaAlignment);
  EXPECT_EQ(plan.region_bytes(Region::kScratch), 2 * kArenaAlignment);
  EXPECT_EQ(plan.region_bytes(Region::kRecomputed), 0);
  // Inputs, attention, MLP, norms, loss, gradients between the halves of a backward.
  EXPECT_EQ(plan.memory().bytes_by_kind(Region::kSaved), (BytesByKind{0, 0, 0, 3 * kArenaAlignment, 0, 0}));
  EXPECT_EQ(plan.memory().bytes_by_kind(Region::kSavedForW), (BytesByKind{0, 0, 2 * kArenaAlignment, 0, 0, 0}));
  EXPECT_EQ(plan.memory().bytes_by_kind(Region::kKept), (BytesByKind{0, 0, 0, 0, 0, kArenaAlignment}));
  EXPECT_EQ(plan.memory().largest_of(Region::kSaved).shape, (Shape{65}));
}

TEST_F(UnitPlanTest, RecomputePolicyDecidesWhereSavedTensorsLie) {
  const auto region = [&](RecomputePolicy policy, RecomputeClass recompute) {
    UnitPlan plan({.recompute = policy}, oracle_);
    const Saved tensor{"a tensor", ActivationKind::kNorms, LastUse::kB, recompute};
    plan.run([&](Pass& p) { p.save(tensor, DType::kF32, {1}); });
    return plan.region_bytes(Region::kSaved) > 0 ? Region::kSaved : Region::kRecomputed;
  };
  for (const RecomputePolicy policy : {RecomputePolicy::kNone, RecomputePolicy::kSelective, RecomputePolicy::kFull})
    EXPECT_EQ(region(policy, RecomputeClass::kNever), Region::kSaved);
  EXPECT_EQ(region(RecomputePolicy::kNone, RecomputeClass::kAttention), Region::kSaved);
  EXPECT_EQ(region(RecomputePolicy::kSelective, RecomputeClass::kAttention), Region::kRecomputed);
  EXPECT_EQ(region(RecomputePolicy::kSelective, RecomputeClass::kBlock), Region::kSaved);
  EXPECT_EQ(region(RecomputePolicy::kFull, RecomputeClass::kAttention), Region::kRecomputed);
  EXPECT_EQ(region(RecomputePolicy::kFull, RecomputeClass::kBlock), Region::kRecomputed);
  UnitPlan plan({.recompute = RecomputePolicy::kFull}, oracle_);
  const Saved for_weights{"a tensor", ActivationKind::kNorms, LastUse::kW};
  plan.run([&](Pass& p) { p.save(for_weights, DType::kF32, {1}); });
  EXPECT_EQ(plan.region_bytes(Region::kRecomputedForW), kArenaAlignment);
  EXPECT_EQ(plan.region_bytes(Region::kRecomputed), 0);
}

// Both ways of writing gradients are announced, with the shapes that the calls have.
TEST_F(UnitPlanTest, ProductsAreAnnouncedByTheCallsThatMakeThem) {
  class Oracle : public DryOps {
   public:
    Oracle() : DryOps(nullptr) {}
    std::int64_t prepare_matmul(const MatmulShape& shape) override {
      shapes.push_back(shape);
      return 100 * static_cast<std::int64_t>(shapes.size());
    }
    std::vector<MatmulShape> shapes;
  } oracle;
  UnitPlan plan({.sequence = 4, .micro_batch = 1}, oracle);
  ParamSpec spec;
  spec.name = "w";
  spec.parts = {{.tensor = "w", .tensor_shape = {6, 5}, .rows = 6, .padded_rows = 6}};
  const ParamId w = plan.param_list().add(spec);
  plan.run([&](Pass& p) { p.weight_gradient(w, dry_view(DType::kF32, {4, 6}), dry_view(DType::kF32, {4, 5})); });
  ASSERT_EQ(oracle.shapes.size(), 2u);
  const MatmulShape expected{.m = 6, .n = 5, .k = 4, .transpose_a = Transpose::kYes};
  EXPECT_EQ(oracle.shapes[0], expected);
  EXPECT_EQ(oracle.shapes[1].accumulate, Accumulate::kYes);
  EXPECT_EQ(plan.region_bytes(Region::kWorkspace), 200);
}

// A pass that asks for more than the dry one, for other shapes or for what nobody made, is refused by name.
class RealPassTest : public UnitPlanTest {
 protected:
  RealPassTest() {
    plan_.run([&](Pass& p) {
      p.save(saved_, DType::kF32, {8});
      p.begin(PassKind::kForward);
      forward(p);
      p.end();
      p.begin(PassKind::kBackwardInput);
      const ScratchScope scope(p.scratch_cursor());
      p.scratch(DType::kF32, {2});
    });
  }

  static void forward(Pass& p) {
    const ScratchScope scope(p.scratch_cursor());
    p.scratch(DType::kF32, {64});
    p.scratch(DType::kBF16, {3, 4});
  }

  std::string refusal(const std::function<void(Pass&)>& calls) {
    Pass p({.ops = oracle_, .stream = stream_, .tensor = *tensor_, .params = none_, .geometry = geometry_, .unit = 7},
           plan_.memory());
    return error_of<InternalError>([&] { calls(p); });
  }
  std::string scratch(PassKind kind, DType dtype, const Shape& shape) {
    return refusal([&](Pass& p) {
      p.begin(kind);
      p.scratch(dtype, shape);
    });
  }
  std::string in_forward(const std::function<void(Pass&)>& calls) {
    return refusal([&](Pass& p) {
      p.begin(PassKind::kForward);
      calls(p);
      p.end();
    });
  }

  const Saved saved_{"the norm's output", ActivationKind::kNorms, LastUse::kW};

 private:
  const LayerGeometry geometry_{.sequence = 4, .micro_batch = 1};
  UnitPlan plan_{geometry_, oracle_};
  DryStream stream_{"compute"};
  std::unique_ptr<Communicator> tensor_ = make_dry_world(0, 1);
  class : public ParamViews {
    ConstTensorView weight(int) const override { return {}; }
    bool trains(int) const override { return true; }
    TensorView grad(int) const override { return {}; }
    Accumulate grad_mode() const override { return Accumulate::kNo; }
  } none_;
};

TEST_F(RealPassTest, SavedTensorsAreThoseOfTheDryPass) {
  const Saved other{"another", ActivationKind::kNorms, LastUse::kW};
  EXPECT_EQ(refusal([&](Pass& p) { p.save(saved_, DType::kF32, {8}); }), "no error");
  expect_parts(refusal([&](Pass& p) { p.save(saved_, DType::kF32, {9}); }),
               {"unit 7: the norm's output is f32 [9], the dry pass made it f32 [8]"});
  expect_parts(refusal([&](Pass& p) { p.save(saved_, DType::kBF16, {8}); }), {"the norm's output is bf16"});
  expect_parts(refusal([&](Pass& p) { p[other]; }), {"unit 7: another is read, but no dry pass has made it"});
}

// Scratch of another shape, type or place is refused, and so is that of another call, although there is room.
TEST_F(RealPassTest, ScratchIsThatOfTheDryPass) {
  EXPECT_EQ(scratch(PassKind::kForward, DType::kF32, {64}), "no error");
  EXPECT_EQ(scratch(PassKind::kBackwardInput, DType::kF32, {2}), "no error");
  expect_parts(scratch(PassKind::kForward, DType::kF32, {65}),
               {"unit 7: forward takes scratch f32 [65] at byte 0 as number 0, which its dry pass did not"});
  EXPECT_NE(scratch(PassKind::kForward, DType::kF32, {8, 8}), "no error");
  expect_parts(scratch(PassKind::kForward, DType::kBF16, {3, 4}), {"at byte 0"});
  expect_parts(scratch(PassKind::kBackwardInput, DType::kF32, {64}), {"backward_input takes"});
  expect_parts(scratch(PassKind::kRecompute, DType::kF32, {2}), {"recompute takes"});
}

TEST_F(RealPassTest, ScratchIsTakenInTheOrderAndNumberOfTheDryPass) {
  EXPECT_EQ(in_forward(forward), "no error");
  expect_parts(in_forward([](Pass& p) {
                 forward(p);
                 forward(p);
               }),
               {"unit 7: forward takes scratch f32 [64] at byte 0 as number 2, which its dry pass did not"});
  expect_parts(in_forward([](Pass& p) {
                 const ScratchScope scope(p.scratch_cursor());
                 p.scratch(DType::kF32, {64});
               }),
               {"unit 7: forward ends after 1 scratch tensors, its dry pass took 2"});
  expect_parts(in_forward([](Pass& p) {
                 const ScratchScope scope(p.scratch_cursor());
                 p.scratch_cursor().take(256);
                 p.scratch(DType::kBF16, {3, 4});
               }),
               {"bf16 [3, 4] at byte 256 as number 0"});
}

TEST_F(RealPassTest, CallsBeginAndEnd) {
  // A call may come again, as where a device records it.
  EXPECT_EQ(refusal([](Pass& p) {
              for (int i = 0; i < 2; ++i) p.begin(PassKind::kForward), forward(p), p.end();
            }),
            "no error");
  expect_parts(refusal(forward), {"unit 7: scratch f32 [64] is taken in no call"});
  expect_parts(in_forward([](Pass& p) { p.scratch(DType::kF32, {64}); }),
               {"unit 7: forward ends with 256 bytes of scratch in use"});
  expect_parts(refusal([](Pass& p) {
                 p.begin(PassKind::kForward);
                 p.begin(PassKind::kBackwardInput);
               }),
               {"unit 7: backward_input begins within forward"});
}

// The second way of writing gradients takes the scratch of the first: what is compared later is both.
TEST_F(UnitPlanTest, BothDryPassesTakeTheSameScratch) {
  UnitPlan plan({.sequence = 4, .micro_batch = 1}, oracle_, 7);
  expect_parts(error_of<InternalError>([&] {
                 plan.run([&](Pass& p) {
                   p.begin(PassKind::kBackward);
                   const ScratchScope scope(p.scratch_cursor());
                   p.scratch(DType::kF32, {p.grad_mode() == Accumulate::kYes ? 2 : 1});
                 });
               }),
               {"unit 7: backward takes scratch f32 [2] at byte 0 as number 0"});
}

// Memory that backward_input used last may be gone when backward_weight comes.
TEST_F(UnitPlanTest, BackwardWeightReadsNoTensorWhoseLastUseWasBefore) {
  UnitPlan plan({.sequence = 4, .micro_batch = 1}, oracle_, 7);
  const Saved statistics{"a norm's means", ActivationKind::kNorms, LastUse::kB};
  const Saved input{"the activation's input", ActivationKind::kMlp, LastUse::kW};
  const auto pass = [&](const Saved& read) {
    plan.run([&](Pass& p) {
      p.save(statistics, DType::kF32, {4});
      p.save(input, DType::kF32, {4});
      p[statistics];
      p.begin(PassKind::kBackwardWeight);
      p[read];
    });
  };
  EXPECT_NO_THROW(pass(input));
  expect_parts(error_of<InternalError>([&] { pass(statistics); }), {"unit 7: backward_weight reads a norm's means"});
}

// A tensor held longer than anybody reads it would only cost memory.
TEST_F(UnitPlanTest, WhatIsHeldForWeightGradientsIsReadByThem) {
  const Saved input{"the activation's input", ActivationKind::kMlp, LastUse::kW};
  const Saved early{"a norm's means", ActivationKind::kNorms, LastUse::kB};
  const BetweenIW kept{"the gradient of an output"};
  const auto refusal = [&](RecomputePolicy policy, bool reads_saved, bool reads_kept) -> std::string {
    UnitPlan plan({.sequence = 4, .micro_batch = 1, .recompute = policy}, oracle_, 7);
    plan.run([&](Pass& p) {
      p.save(early, DType::kF32, {4});
      p.save(input, DType::kF32, {4});
      p.keep(kept, DType::kF32, {4});
      p[early], p[input], p[kept];  // before
      p.begin(PassKind::kBackwardWeight);
      if (reads_saved) p[input];
      if (reads_kept) p[kept];
    });
    return error_of<InternalError>([&] { plan.check_last_uses(); });
  };
  for (const RecomputePolicy policy : {RecomputePolicy::kNone, RecomputePolicy::kFull}) {
    EXPECT_EQ(refusal(policy, true, true), "no error");
    expect_parts(refusal(policy, false, true),
                 {"unit 7: the activation's input is held for backward_weight, which does not read it; declare it LastUse"});
    expect_parts(refusal(policy, true, false), {"unit 7: the gradient of an output is held for backward_weight"});
  }
}

TEST_F(UnitPlanTest, TellsWhetherWeightGradientsReadWeights) {
  for (const bool reads : {false, true}) {
    UnitPlan plan({.sequence = 4, .micro_batch = 1}, oracle_);
    ParamSpec spec;
    spec.parts = {{.tensor = "w", .tensor_shape = {6, 5}, .rows = 6, .padded_rows = 6}};
    const ParamId w = plan.param_list().add(spec);
    plan.run([&](Pass& p) {
      p.weight(w);
      p.begin(PassKind::kBackwardWeight);
      p.grad(w);
      if (reads) p.weight(w);
    });
    EXPECT_EQ(plan.memory().weight_gradient_reads_weights, reads);
  }
}

TEST_F(UnitPlanTest, ScratchOutsideAScopeIsRefused) {
  UnitPlan plan({.sequence = 4, .micro_batch = 1}, oracle_);
  EXPECT_THROW(plan.run([&](Pass& p) { p.begin(PassKind::kForward), p.scratch(DType::kF32, {1}); }), InternalError);
}

}  // namespace
}  // namespace trident
