// Cases of the embedding and of the vocabulary-parallel loss.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>

#include "device/operations.h"
#include "device/ops.h"
#include "tests/conformance/builders.h"
#include "tests/support/reference_ops.h"

namespace trident::conformance {

namespace {

using Views = std::span<const TensorView>;
using Tokens = std::vector<std::int32_t>;

Tokens tokens_of(const Values& values) { return {values.begin(), values.end()}; }

OpCase loss_case(std::string op, DType t, Index R, VocabularyPart part, Draw logits, float softcap = 0) {
  OpCase c;
  c.op = std::move(op);
  c.dtype = t;
  c.variant = fmt::format("{}x{}_from{}_of{}", R, part.columns, part.first_column, part.vocabulary);
  if (logits.b > 100) c.variant += "_large_logits";
  if (logits.kind == Draw::Kind::kIntegers) c.variant += "_ties";
  if (softcap > 0) c.variant += "_bounded";
  return c;
}

// Only the arg max has a logit of 0.
constexpr Tolerance kTargetLogit{.relative = kSumNoise, .floor = 1e-7, .zeros = Zeros::kNoOthers};

// The last column that counts, a token that is not counted, and the first one.
void choose_targets(Values& targets, VocabularyPart part) {
  const Index last = std::min(part.vocabulary, part.first_column + part.columns) - 1;
  if (targets.size() > 0) targets[0] = static_cast<double>(std::max<Index>(last, 0));
  if (targets.size() > 1) targets[1] = -100;
  if (targets.size() > 2) targets[2] = static_cast<double>(std::min(part.first_column, part.vocabulary - 1));
}

// Columns of padding hold the largest logits: whoever counts one is found out.
void raise_padding(Values& logits, Index R, VocabularyPart p) {
  for (Index r = 0; r < R; ++r)
    for (Index c = std::max<Index>(p.vocabulary - p.first_column, 0); c < p.columns; ++c)
      logits[static_cast<std::size_t>(r * p.columns + c)] += 30;
}

// The maximum over all shards: every third row's, and that of a shard of padding, lies in another one.
void derive_row_max(Values& row_max, const Values& logits, Index R, VocabularyPart p, double softcap) {
  reference::cross_entropy_max(row_max.data(), logits.data(), R, p.columns, p.first_column, p.vocabulary, softcap);
  for (std::size_t r = 0; r < row_max.size(); ++r) {
    if (!std::isfinite(row_max[r])) row_max[r] = 9.5;
    if (r % 3 == 0) row_max[r] = static_cast<float>(row_max[r] + 2.5);
  }
}

// Sums of exponentials and target logits of this shard beside `row_max`.
std::pair<Values, Values> statistics(const Values& logits, const Values& row_max, const Values& targets, Index R, VocabularyPart p,
                                     double softcap) {
  Values both(static_cast<std::size_t>(2 * R));
  reference::cross_entropy_stats(both.data(), logits.data(), row_max.data(), tokens_of(targets).data(), R, p.columns,
                                 p.first_column, p.vocabulary, softcap);
  return {Values(both.begin(), both.begin() + R), Values(both.begin() + R, both.end())};
}

Operand targets_operand(Index R, VocabularyPart part) {
  return input("targets", DType::kI32, {R}, integers(-2, part.vocabulary - 1));
}

// Weights of rows are the last operand of a case, with both signs, or it has none.
void weigh_rows(OpCase& c, RowWeights weights, Index R) {
  if (weights == RowWeights::kNone) return;
  c.variant += "_weighted";
  c.operands.push_back(input("weights", DType::kF32, {R}));
}
ConstTensorView weights_in(Views v, std::size_t at) { return v.size() > at ? ConstTensorView(v[at]) : ConstTensorView(); }
const double* weights_in(const std::vector<Values>& v, std::size_t at) { return v.size() > at ? v[at].data() : nullptr; }

}  // namespace

OpCase embedding_forward(DType t, Index R, Index H, Index table_rows, Index first_row) {
  OpCase c;
  c.op = "embedding_forward";
  c.dtype = t;
  c.variant = fmt::format("{}x{}_table{}_from{}", R, H, table_rows, first_row);
  c.operands = {output("out", t, {R, H}, kExact), input("tokens", DType::kI32, {R}, integers(0, 2 * first_row + table_rows)),
                input("table", t, {table_rows, H})};
  c.bytes = static_cast<double>(R) * (4.0 + 2.0 * static_cast<double>(H * size_of(t)));
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::EmbeddingForward{v[0], v[1], v[2], first_row});
  };
  c.reference = [=](std::vector<Values>& v) {
    reference::embedding_forward(v[0].data(), tokens_of(v[1]).data(), v[2].data(), R, H, first_row, table_rows);
  };
  return c;
}

OpCase embedding_backward(DType t, Index R, Index H, Index table_rows, Index first_row, Draw draw) {
  const bool exact = draw.kind == Draw::Kind::kIntegers;
  OpCase c;
  c.op = "embedding_backward";
  c.dtype = t;
  c.variant = fmt::format("{}x{}_table{}_from{}{}", R, H, table_rows, first_row, exact ? "_integers" : "");
  c.operands = {in_place("d_table", DType::kF32, {table_rows, H}, exact ? kExact : rounded(DType::kF32, kSumNoise), draw),
                input("d_out", t, {R, H}, draw), input("tokens", DType::kI32, {R}, integers(0, 2 * first_row + table_rows))};
  c.bytes = static_cast<double>(R) * (4.0 + static_cast<double>(H) * (8.0 + static_cast<double>(size_of(t))));
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::EmbeddingBackward{v[0], v[1], v[2], first_row});
  };
  c.reference = [=](std::vector<Values>& v) {
    reference::embedding_backward(v[0].data(), v[1].data(), tokens_of(v[2]).data(), R, H, first_row, table_rows);
  };
  return c;
}

OpCase cross_entropy_stats(DType t, Index R, VocabularyPart p, Draw draw, float softcap) {
  OpCase c = loss_case("cross_entropy_stats", t, R, p, draw, softcap);
  const Tolerance tolerance{.relative = kSumNoise, .floor = 1e-7, .zeros = Zeros::kExact};
  c.operands = {output("row_max", DType::kF32, {R}, softcap > 0 ? rounded(DType::kF32, kElementNoise) : kExact),
                output("sum_exp", DType::kF32, {R}, tolerance), output("target_logit", DType::kF32, {R}, kTargetLogit),
                input("logits", t, {R, p.columns}, draw), targets_operand(R, p)};
  c.derive = [=](std::vector<Values>& v) {
    raise_padding(v[3], R, p);
    choose_targets(v[4], p);
  };
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::CrossEntropyStats{v[0], v[1], v[2], v[3], v[4], p.first_column, p.vocabulary, softcap});
  };
  c.reference = [=](std::vector<Values>& v) {
    reference::cross_entropy_max(v[0].data(), v[3].data(), R, p.columns, p.first_column, p.vocabulary, double{softcap});
    std::tie(v[1], v[2]) = statistics(v[3], v[0], v[4], R, p, softcap);
  };
  return c;
}

OpCase cross_entropy_gradient(DType t, Index R, VocabularyPart p, Draw draw, float softcap, RowWeights weights) {
  constexpr float kScale = 0.125f * 1.7f;
  OpCase c = loss_case("cross_entropy_backward", t, R, p, draw, softcap);
  c.variant += "_with_statistics";
  const Tolerance sums{.relative = kSumNoise, .floor = 1e-7, .zeros = Zeros::kExact};
  Tolerance tolerance = rounded(t, kSumNoise);
  tolerance.zeros = Zeros::kExact;  // padding, and rows that are not counted
  c.operands = {in_place("logits", t, {R, p.columns}, tolerance, draw), output("sum_exp", DType::kF32, {R}, sums),
                output("target_logit", DType::kF32, {R}, kTargetLogit), targets_operand(R, p)};
  weigh_rows(c, weights, R);
  c.derive = [=](std::vector<Values>& v) {
    raise_padding(v[0], R, p);
    choose_targets(v[3], p);
  };
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::CrossEntropyGradient{v[1], v[2], v[0], v[3], p.vocabulary, kScale, softcap, weights_in(v, 4)});
  };
  c.reference = [=](std::vector<Values>& v) {
    Values row_max(v[1].size());
    reference::cross_entropy_max(row_max.data(), v[0].data(), R, p.columns, Index{0}, p.vocabulary, double{softcap});
    std::tie(v[1], v[2]) = statistics(v[0], row_max, v[3], R, p, softcap);
    reference::cross_entropy_backward(v[0].data(), row_max.data(), v[1].data(), tokens_of(v[3]).data(), R, p.columns, Index{0},
                                      p.vocabulary, double{kScale}, double{softcap}, weights_in(v, 4));
  };
  return c;
}

OpCase cross_entropy_rescale(Index R, VocabularyPart p) {
  OpCase c = loss_case("cross_entropy_rescale", DType::kF32, R, p, normal());
  const Tolerance tolerance = rounded(DType::kF32, kElementNoise);
  const Index end = std::min(p.first_column + p.columns, p.vocabulary);
  const auto is_here = [=](double target) {
    return target >= static_cast<double>(p.first_column) && target < static_cast<double>(end);
  };
  const double none = -std::numeric_limits<double>::infinity();
  const bool padding = p.first_column >= p.vocabulary;
  c.operands = {in_place("sum_exp", DType::kF32, {R}, tolerance), in_place("target_logit", DType::kF32, {R}, kTargetLogit),
                input("shard_max", DType::kF32, {R}), input("row_max", DType::kF32, {R}), targets_operand(R, p)};
  c.derive = [=](std::vector<Values>& v) {
    choose_targets(v[4], p);
    for (std::size_t r = 0; r < v[0].size(); ++r) {
      v[0][r] = padding ? 0 : std::abs(v[0][r]) + 0.5;
      v[3][r] =
          r % 4 == 0 && !padding ? v[2][r] : std::abs(v[3][r]) + static_cast<double>(r % 5) + 4;  // often that of another shard
      if (padding) v[2][r] = none;
      if (!is_here(v[4][r])) v[1][r] = 0;
    }
  };
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::CrossEntropyRescale{v[0], v[1], v[2], v[3], v[4], p.columns, p.first_column, p.vocabulary});
  };
  c.reference = [=](std::vector<Values>& v) {
    for (std::size_t r = 0; r < v[0].size(); ++r) {
      const double below = v[2][r] - v[3][r];
      v[0][r] *= std::exp(below);
      if (is_here(v[4][r])) v[1][r] += below;
      if (v[4][r] >= static_cast<double>(end) && below == 0) v[1][r] = -std::numeric_limits<float>::min();
    }
  };
  return c;
}

OpCase cross_entropy_backward(DType t, Index R, VocabularyPart p, Draw draw, float softcap, RowWeights weights) {
  constexpr float kScale = 0.125f * 1.7f;
  OpCase c = loss_case("cross_entropy_backward", t, R, p, draw, softcap);
  Tolerance tolerance = rounded(t, kElementNoise);
  tolerance.zeros = Zeros::kExact;  // padding, and rows that are not counted
  c.operands = {in_place("logits", t, {R, p.columns}, tolerance, draw), input("row_max", DType::kF32, {R}),
                input("sum_exp", DType::kF32, {R}), targets_operand(R, p)};
  weigh_rows(c, weights, R);
  c.derive = [=](std::vector<Values>& v) {
    raise_padding(v[0], R, p);
    choose_targets(v[3], p);
    derive_row_max(v[1], v[0], R, p, softcap);
    v[2] = statistics(v[0], v[1], v[3], R, p, softcap).first;
    for (double& sum : v[2]) sum += 0.75;  // the other shards' part
  };
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::CrossEntropyBackward{v[0], v[1], v[2], v[3], p.first_column, p.vocabulary, kScale, softcap,
                                                     weights_in(v, 4)});
  };
  c.reference = [=](std::vector<Values>& v) {
    reference::cross_entropy_backward(v[0].data(), v[1].data(), v[2].data(), tokens_of(v[3]).data(), R, p.columns, p.first_column,
                                      p.vocabulary, double{kScale}, double{softcap}, weights_in(v, 4));
  };
  return c;
}

OpCase cross_entropy_loss(Index R, RowWeights weights) {
  OpCase c;
  c.op = "cross_entropy_loss";
  c.variant = std::to_string(R);
  // Terms are f64 and added in row order: only log() may differ, and a term that is rounded is half a place off.
  c.operands = {output("loss", DType::kF64, {1}, {.relative = 1e-13, .zeros = Zeros::kExact}),
                output("row_losses", DType::kF32, {R}, {.relative = 0x1p-24, .zeros = Zeros::kExact}),
                input("sum_exp", DType::kF32, {R}), input("target_logit", DType::kF32, {R}),
                input("targets", DType::kI32, {R}, integers(-2, 20))};
  weigh_rows(c, weights, R);
  c.derive = [=](std::vector<Values>& v) {
    for (double& x : v[2]) x = std::abs(x) + 0.5;
    for (double& x : v[3]) x = -std::abs(x) - 0.5;  // a target's logit is below the maximum
  };
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::CrossEntropyLoss{v[0], v[1], v[2], v[3], v[4], weights_in(v, 5)});
  };
  c.reference = [=](std::vector<Values>& v) {
    Values both = v[2];
    both.insert(both.end(), v[3].begin(), v[3].end());
    v[0][0] = reference::cross_entropy_loss(both.data(), tokens_of(v[4]).data(), R, v[1].data(), weights_in(v, 5));
  };
  return c;
}

}  // namespace trident::conformance
