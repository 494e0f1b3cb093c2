// One pass over rows has the bits of the two that it stands for, on the host and on GPUs.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/device/row_kernels/kernel_fixture.h"

namespace trident::testing {

inline void expect_fused_passes(const RowKernels& k, RowType t) {
  constexpr RowType kF32 = RowType::kF32;
  constexpr Index kRows = 6;
  for (const Index width : {5, 64, 1029}) {
    SCOPED_TRACE(width);
    Random random(static_cast<unsigned>(width));
    const Index count = kRows * width;
    const Operand x(t, random.values(t, count, 3.0));
    Operand residual(t, random.values(t, count)), bias(t, random.values(t, width)), weight(t, random.values(t, width, 1.0));
    for (const bool biased : {false, true}) {
      Operand sum = x, first = x, second = x, y(t, count), y1(t, count), mean(kF32, kRows), mean1(kF32, kRows),
              rstd(kF32, kRows), rstd1(kF32, kRows);
      const void* const summed_bias = biased ? bias.data() : nullptr;
      if (biased) k.add_bias_residual(t, sum.data(), bias.data(), residual.data(), kRows, width);
      else k.add(t, sum.data(), sum.data(), residual.data(), count);
      k.rms_norm_forward(t, y.data(), rstd.floats(), sum.data(), weight.data(), kRows, width, 1e-5f);
      k.residual_rms_norm(t, y1.data(), rstd1.floats(), first.data(), summed_bias, residual.data(), weight.data(), kRows, width,
                           1e-5f);
      EXPECT_TRUE(first.bits() == sum.bits() && y1.bits() == y.bits() && rstd1.bits() == rstd.bits()) << "RMSNorm, " << biased;
      k.layer_norm_forward(t, y.data(), mean.floats(), rstd.floats(), sum.data(), weight.data(), bias.data(), kRows, width, 1e-5f);
      k.residual_layer_norm(t, y1.data(), mean1.floats(), rstd1.floats(), second.data(), summed_bias, residual.data(),
                             weight.data(), bias.data(), kRows, width, 1e-5f);
      EXPECT_TRUE(second.bits() == sum.bits() && y1.bits() == y.bits() && mean1.bits() == mean.bits() &&
                  rstd1.bits() == rstd.bits())
          << "LayerNorm, " << biased;
    }
    Operand sum = x, together = x, out(t, count), expected(t, count);
    k.add_bias(t, sum.data(), bias.data(), kRows, width);
    k.gelu_forward(t, expected.data(), sum.data(), count);
    k.bias_gelu(t, out.data(), together.data(), bias.data(), kRows, width);
    EXPECT_TRUE(together.bits() == sum.bits() && out.bits() == expected.bits()) << "GELU";
    // Rows that are weighted by 1 have the bits of rows without weights.
    const VocabularyShard shard{width, 0, width};
    const std::vector<std::int32_t> targets = random.integers(kRows, -1, static_cast<std::int32_t>(width) - 1);
    Operand logits = x, both = x, largest(kF32, kRows), sums(kF32, kRows), sums1(kF32, kRows), target(kF32, kRows),
            target1(kF32, kRows), ones(kF32, Values(kRows, 1.0));
    k.cross_entropy_stats(t, largest.floats(), sums.floats(), target.floats(), logits.data(), targets.data(), kRows, shard);
    k.cross_entropy_backward(t, logits.data(), largest.floats(), sums.floats(), targets.data(), kRows, shard, 0.3f, nullptr);
    k.cross_entropy_gradient(t, both.data(), sums1.floats(), target1.floats(), targets.data(), kRows, shard, 0.3f,
                              ones.floats());
    EXPECT_TRUE(both.bits() == logits.bits() && sums1.bits() == sums.bits() && target1.bits() == target.bits()) << "the loss";
  }
  const Index batch = 2, heads = 3, sequence = 5, dim = 16, columns = 70, column = 11, half = 5;
  Random random(3);
  Operand cos(kF32, random.values(kF32, 7 * half)), sin(kF32, random.values(kF32, 7 * half));
  const std::vector<std::int32_t> position = random.integers(batch * sequence, 0, 6);
  Operand rows(t, random.values(t, sequence * batch * columns)), rows1 = rows, split(t, batch * heads * sequence * dim),
          split1 = split;
  k.split_heads(t, split.data(), rows.data(), batch, heads, sequence, dim, columns, column);
  k.rope(t, split.data(), cos.floats(), sin.floats(), position.data(), batch, heads, sequence, dim, half, Transpose::kNo);
  k.split_rotated_heads(t, split1.data(), rows.data(), batch, heads, sequence, dim, columns, column, cos.floats(), sin.floats(),
                         position.data(), half);
  EXPECT_EQ(split1.bits(), split.bits());
  k.merge_rotated_heads(t, rows1.data(), split1.data(), batch, heads, sequence, dim, columns, column, cos.floats(), sin.floats(),
                         position.data(), half);
  k.rope(t, split.data(), cos.floats(), sin.floats(), position.data(), batch, heads, sequence, dim, half, Transpose::kYes);
  k.merge_heads(t, rows.data(), split.data(), batch, heads, sequence, dim, columns, column);
  EXPECT_EQ(rows1.bits(), rows.bits());
}

}  // namespace trident::testing
