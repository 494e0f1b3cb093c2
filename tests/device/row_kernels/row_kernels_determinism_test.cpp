// A row's bits do not depend on the other rows, on its place or its address; sums over rows are formed in the order of the rows.
#include <cstdint>

#include "fused_passes.h"
#include "kernel_fixture.h"
#include "tests/support/reference_ops.h"

namespace trident::testing {
namespace {

struct LevelAndDType {
  IsaLevel level;
  RowType type;

  std::string name() const { return std::string(trident::to_string(level)) + "_" + to_string(type); }
  friend void PrintTo(const LevelAndDType& p, std::ostream* out) { *out << p.name(); }
};

std::vector<LevelAndDType> levels_and_dtypes() {
  std::vector<LevelAndDType> all;
  for (const IsaLevel level : supported_levels())
    for (const RowType type : kRowTypes) all.push_back({level, type});
  return all;
}

class RowKernelDeterminism : public ::testing::TestWithParam<LevelAndDType> {
 protected:
  const RowKernels& k_ = row_kernels(GetParam().level);
  const RowType t_ = GetParam().type;
  static constexpr RowType kF32 = RowType::kF32;
  static constexpr Index kRows = 6;

  // Runs `kernel(out, first_row, rows)` for all rows at once and for each row alone, and compares the bits of `width` outputs per
  // row.
  template <class Kernel>
  void expect_row_alone(RowType out_type, Index width, const Values& start, const Kernel& kernel) {
    Operand together(out_type, start);
    kernel(together.data(), Index{0}, kRows);
    for (Index r = 0; r < kRows; ++r) {
      Operand alone(out_type, Values(start.begin() + r * width, start.begin() + (r + 1) * width));
      kernel(alone.data(), r, Index{1});
      ASSERT_EQ(alone.bits(), together.bits(r * width, width)) << "row " << r << " of width " << width;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, RowKernelDeterminism, ::testing::ValuesIn(levels_and_dtypes()),
                         [](const auto& info) { return info.param.name(); });

TEST_P(RowKernelDeterminism, Norms) {
  for (const Index width : {5, 37, 131, 1029}) {
    Random random(static_cast<unsigned>(width));
    Operand x(t_, random.values(t_, kRows * width)), d_y(t_, random.values(t_, kRows * width));
    Operand weight(t_, random.values(t_, width)), bias(t_, random.values(t_, width));
    Operand mean(kF32, kRows), rstd(kF32, kRows), d_weight(kF32, width), d_bias(kF32, width);
    Operand squares(kF32, random.values(kF32, kRows, 9.0)), dots(kF32, random.values(kF32, kRows));
    const Values start(static_cast<std::size_t>(kRows * width), 1.0);
    expect_row_alone(t_, width, start, [&](void* out, Index r, Index rows) {
      k_.rms_norm_forward(t_, out, rstd.floats() + r, x.at(r * width), weight.data(), rows, width, 1e-6f);
    });
    expect_row_alone(t_, width, start, [&](void* out, Index r, Index rows) {
      k_.rms_norm_backward(t_, out, d_weight.floats(), d_y.at(r * width), x.at(r * width), weight.data(), rstd.floats() + r, rows,
                           width, Accumulate::kYes, Accumulate::kNo);
    });
    expect_row_alone(t_, width, start, [&](void* out, Index r, Index rows) {
      k_.rms_norm_apply(t_, out, rstd.floats() + r, x.at(r * width), weight.data(), squares.floats() + r, rows, width, 3 * width,
                        1e-6f);
    });
    expect_row_alone(t_, width, start, [&](void* out, Index r, Index rows) {
      k_.rms_norm_apply_backward(t_, out, d_weight.floats(), d_y.at(r * width), x.at(r * width), weight.data(), rstd.floats() + r,
                                 dots.floats() + r, rows, width, 3 * width, Accumulate::kYes, Accumulate::kNo);
    });
    expect_row_alone(kF32, 1, Values(static_cast<std::size_t>(kRows), 1.0), [&](void* out, Index r, Index rows) {
      k_.rms_norm_squares(t_, static_cast<float*>(out), x.at(r * width), rows, width);
    });
    expect_row_alone(kF32, 1, Values(static_cast<std::size_t>(kRows), 1.0), [&](void* out, Index r, Index rows) {
      k_.rms_norm_dots(t_, static_cast<float*>(out), d_y.at(r * width), x.at(r * width), weight.data(), rows, width);
    });
    expect_row_alone(t_, width, start, [&](void* out, Index r, Index rows) {
      k_.layer_norm_forward(t_, out, mean.floats() + r, rstd.floats() + r, x.at(r * width), weight.data(), bias.data(), rows, width,
                            1e-6f);
    });
    expect_row_alone(t_, width, start, [&](void* out, Index r, Index rows) {
      k_.layer_norm_backward(t_, out, d_weight.floats(), d_bias.floats(), d_y.at(r * width), x.at(r * width), weight.data(),
                             mean.floats() + r, rstd.floats() + r, rows, width, Accumulate::kNo, Accumulate::kNo);
    });
  }
}

TEST_P(RowKernelDeterminism, ParameterGradientsOfSplitCallsAreThoseOfOneCall) {
  const Index width = 75;
  Random random(9);
  Operand x(t_, random.values(t_, kRows * width)), d_y(t_, random.values(t_, kRows * width)), weight(t_, random.values(t_, width));
  Operand rstd(kF32, random.values(kF32, kRows, 1.0, 0.1)), d_x(t_, kRows * width), whole(kF32, width), split(kF32, width);
  const auto run = [&](Operand& d_weight, Index first, Index rows, Accumulate accumulate) {
    k_.rms_norm_backward(t_, d_x.at(first * width), d_weight.floats(), d_y.at(first * width), x.at(first * width), weight.data(),
                         rstd.floats() + first, rows, width, Accumulate::kNo, accumulate);
  };
  run(whole, 0, kRows, Accumulate::kNo);
  run(split, 0, 2, Accumulate::kNo);
  run(split, 2, kRows - 2, Accumulate::kYes);
  EXPECT_EQ(split.bits(), whole.bits());
}

TEST_P(RowKernelDeterminism, SumsAreFormedInFloatInTheOrderOfTheRows) {
  const Index rows = 13, first_row = 20, table_rows = 9;
  for (const Index width : {1, 33, 1029}) {
    Random random(static_cast<unsigned>(width));
    const Values x = random.values(t_, rows * width);
    const std::vector<std::int32_t> tokens = random.integers(rows, 15, 34);
    std::vector<float> terms(x.begin(), x.end()), sums(static_cast<std::size_t>(width), 0.5f);
    std::vector<float> table(static_cast<std::size_t>(table_rows * width), 0.5f);
    Operand in(t_, x), sum(kF32, Values(sums.begin(), sums.end())), d_table(kF32, Values(table.begin(), table.end()));
    reference::sum_rows(sums.data(), terms.data(), rows, width);
    k_.sum_rows(t_, sum.floats(), in.data(), nullptr, rows, width, Accumulate::kYes);
    EXPECT_EQ(sum.values(), Values(sums.begin(), sums.end())) << width;
    reference::embedding_backward(table.data(), terms.data(), tokens.data(), rows, width, first_row, table_rows);
    k_.embedding_backward(t_, d_table.floats(), in.data(), tokens.data(), rows, width, first_row, table_rows);
    EXPECT_EQ(d_table.values(), Values(table.begin(), table.end())) << width;
  }
}

// Backward leaves in d_out what forward gave.
TEST_P(RowKernelDeterminism, Activations) {
  for (const Index width : {3, 37, 130}) {
    Random random(static_cast<unsigned>(width));
    Operand gate_up(t_, random.values(t_, kRows * 2 * width)), d_out(t_, random.values(t_, kRows * width)),
        forward(t_, kRows * width), d_in(t_, kRows * 2 * width);
    expect_row_alone(t_, width, Values(static_cast<std::size_t>(kRows * width)),
                     [&](void* out, Index r, Index rows) { k_.swiglu_forward(t_, out, gate_up.at(r * 2 * width), rows, width); });
    expect_row_alone(t_, 2 * width, Values(static_cast<std::size_t>(kRows * 2 * width)), [&](void* out, Index r, Index rows) {
      Operand d = d_out;
      k_.swiglu_backward(t_, out, d.at(r * width), gate_up.at(r * 2 * width), rows, width);
    });
    Operand d = d_out;
    k_.swiglu_backward(t_, d_in.data(), d.data(), gate_up.data(), kRows, width);
    k_.swiglu_forward(t_, forward.data(), gate_up.data(), kRows, width);
    EXPECT_EQ(d.bits(), forward.bits()) << "swiglu of " << width;
    k_.gelu_backward(t_, d_in.data(), d_out.data(), gate_up.data(), kRows * width);
    k_.gelu_forward(t_, forward.data(), gate_up.data(), kRows * width);
    EXPECT_EQ(d_out.bits(), forward.bits()) << "gelu of " << width;
  }
}

TEST_P(RowKernelDeterminism, FusedPassesAreTheTwoOneAfterTheOther) { expect_fused_passes(k_, t_); }

TEST_P(RowKernelDeterminism, CrossEntropy) {
  const Index columns = 203;
  const VocabularyShard shard{columns, 100, 290};
  Random random(3);
  const Values logits = random.values(t_, kRows * columns, 0, 4);
  Operand in(t_, logits), row_max(kF32, kRows), sum(kF32, kRows), target(kF32, kRows);
  const std::vector<std::int32_t> targets{100, 289, 5, -1, 150, 299};
  expect_row_alone(kF32, 1, Values(kRows), [&](void* out, Index r, Index rows) {
    k_.cross_entropy_stats(t_, row_max.floats(), static_cast<float*>(out), target.floats(), in.at(r * columns), targets.data() + r,
                           rows, shard);
  });
  k_.cross_entropy_stats(t_, row_max.floats(), sum.floats(), target.floats(), in.data(), targets.data(), kRows, shard);
  expect_row_alone(t_, columns, logits, [&](void* out, Index r, Index rows) {
    k_.cross_entropy_backward(t_, out, row_max.floats() + r, sum.floats() + r, targets.data() + r, rows, shard, 0.3f, nullptr);
  });
}

// Elementwise kernels: each element has the same bits in a full vector, at the end of a row, and alone.
TEST_P(RowKernelDeterminism, Elements) {
  const Index count = 53;
  Random random(4);
  Operand x(t_, random.values(t_, count, 0, 3)), d_out(t_, random.values(t_, count)), all(t_, count), one(t_, 1);
  for (const bool backward : {false, true}) {
    const auto run = [&](void* out, Index first, Index n) {
      Operand d = d_out;
      if (backward)
        k_.gelu_backward(t_, out, d.at(first), x.at(first), n);
      else
        k_.gelu_forward(t_, out, x.at(first), n);
    };
    run(all.data(), 0, count);
    for (Index i = 0; i < count; ++i) {
      run(one.data(), i, 1);
      ASSERT_EQ(one.bits(), all.bits(i, 1)) << "gelu" << (backward ? " backward" : "") << " of element " << i;
    }
  }
}

TEST_P(RowKernelDeterminism, AnUpdateOfPartsIsThatOfTheWhole) {
  const Index count = 101;
  Random random(5);
  const Values w = random.values(kF32, count), g = random.values(kF32, count), m = random.values(kF32, count);
  const Values v(static_cast<std::size_t>(count), 0.3);
  const UpdateNumbers step{1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.7f, 1.3f, 1.9f};
  for (const UpdateRule rule : kUpdateRules) {
    Operand grad(kF32, g), p1(t_, count), w1(kF32, w), m1(kF32, m), v1(kF32, v), p2(t_, count), w2(kF32, w), m2(kF32, m),
        v2(kF32, v);
    k_.update(rule, t_, p1.data(), w1.floats(), {{m1.floats(), v1.floats()}}, grad.floats(), count, step, nullptr);
    for (Index first = 0; first < count; first += 7) {
      const Index n = std::min<Index>(7, count - first);
      k_.update(rule, t_, p2.at(first), w2.floats() + first, {{m2.floats() + first, v2.floats() + first}}, grad.floats() + first,
                n, step, nullptr);
    }
    EXPECT_EQ(w1.bits(), w2.bits());
    EXPECT_EQ(m1.bits(), m2.bits());
    EXPECT_EQ(v1.bits(), v2.bits());
    EXPECT_EQ(p1.bits(), p2.bits());
  }
}

TEST_P(RowKernelDeterminism, DropoutOfASequenceShardIsPartOfTheWhole) {
  const Index sequence = 6, batch = 2, width = 45;
  Random random(6);
  Operand x(t_, random.values(t_, sequence * batch * width)), whole(t_, sequence * batch * width), part(t_, 2 * batch * width);
  const std::vector<std::int64_t> samples{4, 1'000'003};
  DropoutSpec spec{0.3f, {1, 2}, sequence, 0};
  k_.dropout(t_, whole.data(), x.data(), samples.data(), sequence, batch, width, spec);
  spec.position_offset = 3;
  k_.dropout(t_, part.data(), x.at(3 * batch * width), samples.data(), 2, batch, width, spec);
  EXPECT_EQ(part.bits(), whole.bits(3 * batch * width, 2 * batch * width));
}

}  // namespace
}  // namespace trident::testing
