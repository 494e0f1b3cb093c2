#include <cstdint>

#include "case_table.h"
#include "tests/support/reference_ops.h"

namespace trident::testing {
namespace {

// A shard of a vocabulary and rows whose targets lie in it, beside it, or are not counted.
struct LossInputs {
  LossInputs(RowType t, Index rows, const VocabularyShard& shard)
      : random(static_cast<unsigned>(rows + shard.columns)),
        logits(random.values(t, rows * shard.columns, 0.0, 3.0)),
        targets(random.integers(rows, -2, static_cast<std::int32_t>(shard.vocabulary) - 1)),
        row_max(static_cast<std::size_t>(rows)),
        weights(random.values(RowType::kF32, rows, 0.0, 1.0)),
        stats(static_cast<std::size_t>(2 * rows)) {
    const Index last_valid = std::min(shard.vocabulary, shard.first_column + shard.columns) - 1;
    if (rows > 0) targets[0] = static_cast<std::int32_t>(std::max<Index>(last_valid, 0));
    if (rows > 1) targets[1] = -100;
    if (rows > 2) targets[2] = static_cast<std::int32_t>(shard.vocabulary);  // a padding column is no target
    reference::cross_entropy_max(row_max.data(), logits.data(), rows, shard.columns, shard.first_column, shard.vocabulary,
                                 double{shard.softcap});
    // As if another shard held a larger logit in every third row; a shard of padding alone depends on that.
    for (std::size_t r = 0; r < row_max.size(); ++r)
      if (r % 3 == 0 || !std::isfinite(row_max[r])) row_max[r] = 9.5;
    reference::cross_entropy_stats(stats.data(), logits.data(), row_max.data(), targets.data(), rows, shard.columns,
                                   shard.first_column, shard.vocabulary, double{shard.softcap});
    for (std::size_t r = 0; r < row_max.size(); ++r) stats[r] += 0.75;  // the other shards' part
  }
  Random random;
  Values logits;
  std::vector<std::int32_t> targets;
  Values row_max, weights, stats;
};

// As a shard sees it, alone.
void stats_case(const RowKernels& k, RowType t, Index rows, const VocabularyShard& shard) {
  const LossInputs in(t, rows, shard);
  Values largest(static_cast<std::size_t>(rows)), stats(static_cast<std::size_t>(2 * rows));
  reference::cross_entropy_max(largest.data(), in.logits.data(), rows, shard.columns, shard.first_column, shard.vocabulary,
                               double{shard.softcap});
  reference::cross_entropy_stats(stats.data(), in.logits.data(), largest.data(), in.targets.data(), rows, shard.columns,
                                 shard.first_column, shard.vocabulary, double{shard.softcap});
  Operand logits(t, in.logits), row_max(RowType::kF32, rows), sum(RowType::kF32, rows), target(RowType::kF32, rows);
  k.cross_entropy_stats(t, row_max.floats(), sum.floats(), target.floats(), logits.data(), in.targets.data(), rows, shard);
  if (shard.softcap > 0)
    expect_close(row_max.values(), largest, RowType::kF32, "largest logit");
  else
    EXPECT_EQ(row_max.values(), largest);
  expect_close(sum.values(), Values(stats.begin(), stats.begin() + rows), RowType::kF32, "sum of exponentials");
  expect_close(target.values(), Values(stats.begin() + rows, stats.end()), RowType::kF32, "target logit");
}

// To the bit the two passes one after the other, and those of rows that are weighted by 1.
void gradient_case(const RowKernels& k, RowType t, Index rows, const VocabularyShard& shard) {
  const LossInputs in(t, rows, shard);
  Operand logits(t, in.logits), row_max(RowType::kF32, rows), sum(RowType::kF32, rows), target(RowType::kF32, rows);
  k.cross_entropy_stats(t, row_max.floats(), sum.floats(), target.floats(), logits.data(), in.targets.data(), rows, shard);
  k.cross_entropy_backward(t, logits.data(), row_max.floats(), sum.floats(), in.targets.data(), rows, shard, 0.3f, nullptr);
  Operand weights(RowType::kF32, Values(static_cast<std::size_t>(rows), 1.0));
  Operand both(t, in.logits), both_sum(RowType::kF32, rows), both_target(RowType::kF32, rows);
  k.cross_entropy_gradient(t, both.data(), both_sum.floats(), both_target.floats(), in.targets.data(), rows, shard, 0.3f,
                           weights.floats());
  EXPECT_EQ(both.bits(), logits.bits());
  EXPECT_EQ(both_sum.bits(), sum.bits());
  EXPECT_EQ(both_target.bits(), target.bits());
}

void backward_case(const RowKernels& k, RowType t, Index rows, const VocabularyShard& shard) {
  const LossInputs in(t, rows, shard);
  const float scale = 0.125f * 1.7f;
  Values expected = in.logits;
  reference::cross_entropy_backward(expected.data(), in.row_max.data(), in.stats.data(), in.targets.data(), rows, shard.columns,
                                    shard.first_column, shard.vocabulary, double{scale}, double{shard.softcap}, in.weights.data());
  Operand logits(t, in.logits), row_max(RowType::kF32, in.row_max), stats(RowType::kF32, in.stats);
  Operand weights(RowType::kF32, in.weights);
  k.cross_entropy_backward(t, logits.data(), row_max.floats(), stats.floats(), in.targets.data(), rows, shard, scale,
                           weights.floats());
  const Values actual = logits.values();
  expect_close(actual, expected, t, "d_logits");
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (expected[i] != 0) continue;
    ASSERT_EQ(actual[i], 0) << "padding or a row that is not counted, at " << i;
  }
}

}  // namespace

std::vector<OpCase> loss_cases() {
  std::vector<OpCase> cases;
  std::vector<Index> widths = kWidths;
  widths.push_back(kLongWidth);
  for (const Index columns : widths)
    for (const Index rows : {0, 1, 7})
      for (const int kind : {0, 1, 2, 3, 4}) {
        if (columns == kLongWidth && rows > 1) continue;
        // 0: the whole vocabulary; 1: a shard in the middle; 2: the last shard, its tail padding; 3: all padding;
        // 4: as 2, of bounded logits.
        VocabularyShard shard{columns, kind == 0 ? 0 : 40, columns};
        if (kind == 1) shard.vocabulary = columns + 100;
        if (kind == 2 || kind == 4) shard.vocabulary = 40 + (columns + 1) / 2;
        if (kind == 3) shard.vocabulary = 30;
        if (kind == 4) shard.softcap = 2.5f;
        const std::string variant = std::to_string(rows) + "x" + std::to_string(columns) +
                                    std::vector<std::string>{"_whole", "_middle", "_last", "_padding", "_bounded"}[kind];
        cases.push_back({"cross_entropy_stats", variant, [=](const RowKernels& k, RowType t) { stats_case(k, t, rows, shard); }});
        cases.push_back(
            {"cross_entropy_backward", variant, [=](const RowKernels& k, RowType t) { backward_case(k, t, rows, shard); }});
        if (shard.first_column == 0)
          cases.push_back(
              {"cross_entropy_gradient", variant, [=](const RowKernels& k, RowType t) { gradient_case(k, t, rows, shard); }});
      }
  return cases;
}

}  // namespace trident::testing
