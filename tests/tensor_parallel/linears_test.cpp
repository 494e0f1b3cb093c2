// Column- and row-parallel linears over 1, 2, 4 ranks, with and without sequence parallelism, against plain loops. Inputs are small
// integers, so every sum is exact and equality is to the last bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/int_math.h"
#include "tensor_parallel/column_parallel_linear.h"
#include "tensor_parallel/linear_adapter.h"
#include "tensor_parallel/row_parallel_linear.h"
#include "tensor_parallel/vocab_parallel_cross_entropy.h"
#include "tensor_parallel/vocab_parallel_embedding.h"
#include "tests/support/planned_unit.h"
#include "tests/support/reference_attention.h"

namespace trident {
namespace {

using testing::GradientCollector;
using testing::LogicalTensors;
using testing::PlannedUnit;
using testing::TensorRank;

constexpr std::int64_t kSequence = 8, kBatch = 2, kRows = kSequence * kBatch;

struct Case {
  int degree;
  bool sequence_parallel;
  std::int64_t padding = 0;  // a vocabulary is padded to a multiple of this per rank

  std::string name() const {
    return std::to_string(degree) + (padding > 0 ? "Padding" + std::to_string(padding) : "") +
           (sequence_parallel ? "SequenceParallel" : "");
  }
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name(); }
};

std::vector<double> integers(std::int64_t count, int seed) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>((i * 7 + i / 5 + static_cast<std::size_t>(seed)) % 5) - 2.0;
  return values;
}

LayerGeometry geometry_of(const Case& c, int rank) {
  return {.sequence = kSequence,
          .micro_batch = kBatch,
          .tensor_degree = c.degree,
          .tensor_rank = rank,
          .sequence_parallel = c.sequence_parallel};
}

// A local f32 tensor in memory of its own.
struct Tensor {
  explicit Tensor(Shape shape) : values(static_cast<std::size_t>(shape.num_elements()), -77.0f), shape_(shape) {}
  TensorView view() { return {values.data(), DType::kF32, shape_}; }
  std::vector<float> values;

 private:
  Shape shape_;
};

// Rows [first, ..) of a whole [rows, width] tensor.
Tensor rows_of(const std::vector<double>& whole, Shape shape, std::int64_t first_row) {
  Tensor t(shape);
  const auto begin = static_cast<std::size_t>(first_row * shape[-1]);
  for (std::size_t i = 0; i < t.values.size(); ++i) t.values[i] = static_cast<float>(whole[begin + i]);
  return t;
}

// Columns [first, first + width) of a whole [kRows, columns] tensor.
Tensor columns_of(const std::vector<double>& whole, std::int64_t columns, std::int64_t first, std::int64_t width) {
  Tensor t({kRows, width});
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t c = 0; c < width; ++c)
      t.values[static_cast<std::size_t>(r * width + c)] =
          static_cast<float>(whole[static_cast<std::size_t>(r * columns + first + c)]);
  return t;
}

ParamSpec spec_of(const char* name, Shape shape, TensorSharding sharding, std::vector<SubAxis> partial = {}) {
  ParamSpec spec;
  spec.name = name;
  spec.parts = {{.tensor = name, .tensor_shape = shape, .rows = shape[0], .padded_rows = shape[0], .init = {InitKind::kZeros, 0}}};
  spec.sharding = sharding;
  spec.grad_partial_over = std::move(partial);
  return spec;
}

// The serial linear layer: y = x W^T + b and its gradients.
struct Serial {
  Serial(std::int64_t in, std::int64_t out)
      : x(integers(kRows * in, 1)), w(integers(out * in, 2)), b(integers(out, 3)), d_y(integers(kRows * out, 4)),
        y(static_cast<std::size_t>(kRows * out)), d_x(x.size()), d_w(w.size()), d_b(b.size(), 0.0) {
    reference::matmul(y.data(), x.data(), false, w.data(), true, kRows, out, in, false);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += b[i % b.size()];
    reference::matmul(d_x.data(), d_y.data(), false, w.data(), false, kRows, in, out, false);
    reference::matmul(d_w.data(), d_y.data(), true, x.data(), false, out, in, kRows, false);
    for (std::size_t i = 0; i < d_y.size(); ++i) d_b[i % b.size()] += d_y[i];
  }
  std::vector<double> x, w, b, d_y, y, d_x, d_w, d_b;
};

void plan_passes(UnitPlan& plan, const ColumnParallelLinear& linear, Shape input, const std::vector<TensorView>& y) {
  plan.run([&](Pass& p) {
    const TensorView x = dry_view(DType::kF32, input);
    p.begin(PassKind::kForward);
    linear.forward(p, x, y);
    p.end();
    p.begin(PassKind::kBackwardInput);
    linear.backward_input(p, x, y);
    p.end();
    p.begin(PassKind::kBackwardWeight);
    linear.backward_weight(p, x, y);
  });
}

class LinearTest : public ::testing::TestWithParam<Case> {};

TEST_P(LinearTest, ColumnParallelEqualsSerial) {
  const Case c = GetParam();
  const std::int64_t in = 6, out = 16, local = out / c.degree;
  const Serial serial(in, out);
  GradientCollector collector(c.degree);
  testing::run_tensor_ranks(c.degree, {}, [&](TensorRank& rank) {
    const LayerGeometry g = geometry_of(c, rank.rank());
    UnitPlan plan(g, rank.device.ops());
    const TensorSharding rows = c.degree > 1 ? TensorSharding{ShardDim::kRows, c.degree} : TensorSharding{};
    const ParamId w = plan.param_list().add(spec_of("w", {out, in}, rows));
    const ParamId b = plan.param_list().add(spec_of("b", {out}, rows));
    const ColumnParallelLinear linear({{w, b, local}});
    plan_passes(plan, linear, g.activation_shape(in), std::vector(1, dry_view(DType::kF32, {kRows, local})));
    PlannedUnit unit(rank, plan, {{"w", serial.w}, {"b", serial.b}});

    Tensor x = rows_of(serial.x, g.activation_shape(in), g.row_offset()), y({kRows, local}), d_x(g.activation_shape(in));
    Tensor d_y = columns_of(serial.d_y, out, rank.rank() * local, local);
    const std::array views{y.view()}, gradients{d_y.view()};
    linear.forward(unit.pass(PassKind::kForward), x.view(), views);
    linear.backward_input(unit.pass(PassKind::kBackwardInput), d_x.view(), gradients);
    linear.backward_weight(unit.pass(PassKind::kBackwardWeight), x.view(), gradients);
    EXPECT_EQ(y.values, columns_of(serial.y, out, rank.rank() * local, local).values);
    EXPECT_EQ(d_x.values, rows_of(serial.d_x, g.activation_shape(in), g.row_offset()).values);
    unit.collect(collector);
  });
  const LogicalTensors gradients = collector.whole();
  EXPECT_EQ(gradients.at("w"), serial.d_w);
  EXPECT_EQ(gradients.at("b"), serial.d_b);
}

TEST_P(LinearTest, RowParallelEqualsSerial) {
  const Case c = GetParam();
  const std::int64_t in = 8, out = 6, local = in / c.degree;
  const Serial serial(in, out);
  GradientCollector collector(c.degree);
  testing::run_tensor_ranks(c.degree, {}, [&](TensorRank& rank) {
    const LayerGeometry g = geometry_of(c, rank.rank());
    UnitPlan plan(g, rank.device.ops());
    const TensorSharding columns = c.degree > 1 ? TensorSharding{ShardDim::kColumns, c.degree} : TensorSharding{};
    std::vector<SubAxis> partial;
    if (g.shards_sequence()) partial = {{Axis::kTensor, c.degree, 1}};
    const ParamId w = plan.param_list().add(spec_of("w", {out, in}, columns));
    const ParamId b = plan.param_list().add(spec_of("b", {out}, {}, partial));
    const RowParallelLinear linear(out, w, b);
    plan.run([&](Pass& p) {
      const TensorView x = dry_view(DType::kF32, {kRows, local});
      p.begin(PassKind::kForward);
      linear.forward(p, dry_view(DType::kF32, g.activation_shape(out)), x);
      p.end();
      p.begin(PassKind::kBackwardInput);
      linear.d_y(p);
      linear.backward_input(p, x);
      p.end();
      p.begin(PassKind::kBackwardWeight);
      linear.backward_weight(p, x);
    });
    PlannedUnit unit(rank, plan, {{"w", serial.w}, {"b", serial.b}});

    Tensor x = columns_of(serial.x, in, rank.rank() * local, local), y(g.activation_shape(out)), d_x({kRows, local});
    const Tensor d_y = rows_of(serial.d_y, g.activation_shape(out), g.row_offset());
    Pass& forward = unit.pass(PassKind::kForward);
    const ConstTensorView bias = linear.forward(forward, y.view(), x.view());
    forward.run(op::AddBias{.x = as_rows(y.view()), .bias = bias});
    std::ranges::copy(d_y.values, linear.d_y(unit.pass(PassKind::kBackwardInput)).as<float>());
    linear.backward_input(unit.pass(PassKind::kBackwardInput), d_x.view());
    linear.backward_weight(unit.pass(PassKind::kBackwardWeight), x.view());
    EXPECT_EQ(y.values, rows_of(serial.y, g.activation_shape(out), g.row_offset()).values);
    EXPECT_EQ(d_x.values, columns_of(serial.d_x, in, rank.rank() * local, local).values);
    unit.collect(collector);
  });
  const LogicalTensors gradients = collector.whole();
  EXPECT_EQ(gradients.at("w"), serial.d_w);
  EXPECT_EQ(gradients.at("b"), serial.d_b);
}

// Two projections of one input share the gather and the sum of its gradient; a second backward accumulates.
TEST_P(LinearTest, ProjectionsShareTheirInput) {
  const Case c = GetParam();
  const std::int64_t in = 6, out = 8, local = out / c.degree;
  const Serial serial(in, out);
  const std::vector<double> w2 = integers(out * in, 9);
  std::vector<double> d_x = serial.d_x, d_x2(d_x.size());
  reference::matmul(d_x2.data(), serial.d_y.data(), false, w2.data(), false, kRows, in, out, false);
  for (std::size_t i = 0; i < d_x.size(); ++i) d_x[i] += d_x2[i];
  GradientCollector collector(c.degree);
  testing::run_tensor_ranks(c.degree, {}, [&](TensorRank& rank) {
    const LayerGeometry g = geometry_of(c, rank.rank());
    UnitPlan plan(g, rank.device.ops());
    const TensorSharding rows = c.degree > 1 ? TensorSharding{ShardDim::kRows, c.degree} : TensorSharding{};
    const ParamId a = plan.param_list().add(spec_of("w", {out, in}, rows));
    const ParamId b = plan.param_list().add(spec_of("w2", {out, in}, rows));
    const ColumnParallelLinear linear({{a, {}, local}, {b, {}, local}});
    plan_passes(plan, linear, g.activation_shape(in), std::vector(2, dry_view(DType::kF32, {kRows, local})));
    PlannedUnit unit(rank, plan, {{"w", serial.w}, {"w2", w2}});

    Tensor x = rows_of(serial.x, g.activation_shape(in), g.row_offset()), dx(g.activation_shape(in));
    Tensor d_y = columns_of(serial.d_y, out, rank.rank() * local, local);
    const std::array gradients{d_y.view(), d_y.view()};
    linear.backward_input(unit.pass(PassKind::kBackwardInput), dx.view(), gradients);
    linear.backward_weight(unit.pass(PassKind::kBackwardWeight), x.view(), gradients);
    unit.store().begin_backward(0, 0, Accumulate::kYes);
    linear.backward_weight(unit.pass(PassKind::kBackwardWeight), x.view(), gradients);
    EXPECT_EQ(dx.values, rows_of(d_x, g.activation_shape(in), g.row_offset()).values);
    unit.collect(collector);
  });
  std::vector<double> twice = serial.d_w;
  for (double& value : twice) value *= 2;
  const LogicalTensors gradients = collector.whole();
  EXPECT_EQ(gradients.at("w"), twice);
  EXPECT_EQ(gradients.at("w2"), twice);
}

INSTANTIATE_TEST_SUITE_P(Degrees, LinearTest,
                         ::testing::Values(Case{1, false}, Case{1, true}, Case{2, false}, Case{2, true}, Case{4, false},
                                           Case{4, true}),
                         [](const auto& info) { return info.param.name(); });

// Vocabulary-parallel embedding and cross-entropy, whole and in pieces, over 1, 2, 4 ranks against
// plain loops in double; padding changes nothing.

constexpr std::int64_t kHidden = 4, kVocabulary = 11;

std::int64_t padded(const Case& c) { return round_up(kVocabulary, c.padding * c.degree); }

class VocabularyTest : public ::testing::TestWithParam<Case> {};

TEST_P(VocabularyTest, EmbeddingEqualsSerial) {
  const Case c = GetParam();
  std::vector<double> table(kVocabulary * kHidden), d_y(kRows * kHidden), d_table(table.size(), 0.0);
  std::vector<std::int32_t> tokens(kRows);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<double>(i) - 20.0;
  for (std::size_t i = 0; i < d_y.size(); ++i) d_y[i] = static_cast<double>(i * 3 % 7) - 3.0;
  for (std::size_t r = 0; r < kRows; ++r) tokens[r] = static_cast<std::int32_t>(r * 5 % kVocabulary);
  for (std::size_t i = 0; i < d_y.size(); ++i)
    d_table[static_cast<std::size_t>(tokens[i / kHidden]) * kHidden + i % kHidden] += d_y[i];

  GradientCollector collector(c.degree);
  testing::run_tensor_ranks(c.degree, {}, [&](TensorRank& rank) {
    const LayerGeometry g = geometry_of(c, rank.rank());
    UnitPlan plan(g, rank.device.ops());
    ParamSpec spec;
    spec.name = "table";
    spec.parts = {{.tensor = "table", .tensor_shape = {kVocabulary, kHidden}, .rows = kVocabulary, .padded_rows = padded(c)}};
    if (c.degree > 1) spec.sharding = {ShardDim::kRows, c.degree};
    const VocabParallelEmbedding embedding(padded(c) / c.degree, kHidden, plan.param_list().add(spec));
    plan.run([&](Pass& p) {
      const TensorView dry_tokens = dry_view(DType::kI32, {kRows});
      p.begin(PassKind::kForward);
      embedding.forward(p, dry_view(DType::kF32, g.activation_shape(kHidden)), dry_tokens);
      p.end();
      p.begin(PassKind::kBackwardInput);
      embedding.d_y(p);
      p.end();
      p.begin(PassKind::kBackwardWeight);
      embedding.backward_weight(p, dry_tokens);
    });
    PlannedUnit unit(rank, plan, {{"table", table}});

    std::vector<float> y(static_cast<std::size_t>(g.local_rows() * kHidden));
    const ConstTensorView token_view(tokens.data(), DType::kI32, {kRows});
    embedding.forward(unit.pass(PassKind::kForward), {y.data(), DType::kF32, g.activation_shape(kHidden)}, token_view);
    float* d = embedding.d_y(unit.pass(PassKind::kBackwardInput)).as<float>();
    const auto offset = static_cast<std::size_t>(g.row_offset() * kHidden);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t at = offset + i;
      EXPECT_EQ(y[i], table[static_cast<std::size_t>(tokens[at / kHidden]) * kHidden + at % kHidden]) << "row " << at / kHidden;
      d[i] = static_cast<float>(d_y[at]);
    }
    embedding.backward_weight(unit.pass(PassKind::kBackwardWeight), token_view);
    unit.collect(collector);
  });
  EXPECT_EQ(collector.whole().at("table"), d_table);
}

// The cross-entropy of logits that cover every case, in plain loops. `softcap` over 0 bounds the logits; `weights` are of rows, or
// empty.
struct SerialLoss {
  SerialLoss(float softcap, const std::vector<float>& weights) {
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 3.0 * std::sin(static_cast<double>(i)) + (i % 13 == 0 ? 40.0 : 0.0);
    for (std::size_t r = 0; r < kRows; ++r) {
      targets[r] = r % 5 == 4 ? -1 : static_cast<std::int32_t>(r * 3 % kVocabulary);
      if (targets[r] < 0) continue;
      if (r % 4 == 3) logits[r * kVocabulary + static_cast<std::size_t>(targets[r])] += 60;  // it is the arg max
      // The first of several largest is the arg max: the target in row 3, another in row 15, and in row 7 one of another rank.
      const double of_target = logits[r * kVocabulary + static_cast<std::size_t>(targets[r])];
      if (r == 3) logits[r * kVocabulary + kVocabulary - 1] = of_target;
      if (r == 7 || r == 15) logits[r * kVocabulary] = of_target;
      std::vector<double> row(&logits[r * kVocabulary], &logits[r * kVocabulary] + kVocabulary), slope(kVocabulary, 1.0);
      for (std::size_t v = 0; softcap > 0 && v < kVocabulary; ++v) {
        const double bounded = std::tanh(row[v] / softcap);
        row[v] = softcap * bounded;
        slope[v] = 1 - bounded * bounded;
      }
      const double weight = weights.empty() ? 1.0 : double{weights[r]};
      double largest = *std::ranges::max_element(row), sum = 0.0;
      for (std::size_t v = 0; v < kVocabulary; ++v) sum += std::exp(row[v] - largest);
      for (std::size_t v = 0; v < kVocabulary; ++v)
        d_logits[r * kVocabulary + v] =
            (std::exp(row[v] - largest) / sum - (targets[r] == static_cast<std::int32_t>(v))) * slope[v] * kScale * weight;
      below[r] = row[static_cast<std::size_t>(targets[r])] - largest;
      is_arg_max[r] = std::ranges::max_element(row) - row.begin() == targets[r];  // the first of several
      row_losses[r] = std::log(sum) - below[r];
      loss += weight * row_losses[r];
      sum_of_rows += row_losses[r];
    }
  }

  // Checks what a forward wrote for each row, and overwrites it for the next one.
  void expect_rows(std::vector<float>& of_rows, std::vector<float>& target_logits) const {
    std::int64_t correct = 0;
    double all = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      const float target_logit = std::exchange(target_logits[r], -1.0f), row_loss = std::exchange(of_rows[r], -1.0f);
      all += row_loss;
      if (targets[r] < 0) {
        EXPECT_EQ(row_loss, 0.0f) << "row " << r << " does not count";
        continue;
      }
      EXPECT_NEAR(target_logit, below[r], 1e-4) << "row " << r;
      EXPECT_EQ(target_logit == 0, is_arg_max[r]) << "row " << r << ": whether the target is the arg max";
      correct += target_logit == 0 ? 1 : 0;
      EXPECT_NEAR(row_loss, row_losses[r], 1e-6 * std::max(1.0, row_losses[r])) << "row " << r;
    }
    EXPECT_EQ(correct, 3);
    EXPECT_NEAR(all, sum_of_rows, 1e-6 * sum_of_rows);
  }

  static constexpr float kScale = 0.125f;  // of the gradients
  std::vector<double> logits = std::vector<double>(kRows * kVocabulary), d_logits = logits;
  std::vector<std::int32_t> targets = std::vector<std::int32_t>(kRows);
  std::vector<double> row_losses = std::vector<double>(kRows);
  std::vector<double> below = row_losses;  // targets' logits less the largest of their rows
  std::vector<bool> is_arg_max = std::vector<bool>(kRows);
  double loss = 0.0, sum_of_rows = 0.0;
};

void expect_serial_cross_entropy(const Case& c, float softcap, const std::vector<float>& weights = {}) {
  const SerialLoss serial(softcap, weights);
  testing::run_tensor_ranks(c.degree, {}, [&](TensorRank& rank) {
    const LayerGeometry g = geometry_of(c, rank.rank());
    const auto columns = static_cast<std::size_t>(padded(c) / c.degree), first = columns * static_cast<std::size_t>(rank.rank());
    UnitPlan plan(g, rank.device.ops());
    const VocabParallelCrossEntropy cross_entropy(static_cast<std::int64_t>(columns), kVocabulary, softcap);
    plan.run([&](Pass& p) {
      p.begin(PassKind::kForward);
      const ScratchScope scope(p.scratch_cursor());
      cross_entropy.begin(p);
    });
    PlannedUnit unit(rank, plan, {});

    std::vector<float> local(kRows * columns, 1e6f);  // padding columns hold nonsense
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t v = 0; v < columns && first + v < kVocabulary; ++v)
        local[r * columns + v] = static_cast<float>(serial.logits[r * kVocabulary + first + v]);
    double result = -1.0;
    const TensorView view(local.data(), DType::kF32, {kRows, static_cast<std::int64_t>(columns)});
    const TensorView loss_view(&result, DType::kF64, {1});
    const LossRows target_view(ConstTensorView(serial.targets.data(), DType::kI32, {kRows}),
                               weights.empty() ? ConstTensorView() : ConstTensorView(weights.data(), DType::kF32, {kRows}));
    std::vector<float> of_rows(kRows, -1.0f), target_logits(kRows, -1.0f);
    const LossOutputs with_rows{loss_view, TensorView(of_rows.data(), DType::kF32, {kRows}),
                                TensorView(target_logits.data(), DType::kF32, {kRows})};
    cross_entropy.forward(unit.pass(PassKind::kForward), {loss_view, {}, {}}, view, target_view);
    const double alone = std::exchange(result, -1.0);
    cross_entropy.forward(unit.pass(PassKind::kForward), with_rows, view, target_view);
    EXPECT_EQ(result, alone) << "with the rows' losses beside it";
    EXPECT_NEAR(result, serial.loss, 1e-6 * serial.sum_of_rows);
    serial.expect_rows(of_rows, target_logits);
    const double whole = std::exchange(result, -1.0);
    // Rows from the last to the first, three at a time: kRows is no multiple of that.
    const auto in_pieces = [&](const auto& f) {
      for (std::int64_t first = kRows / 3 * 3; first >= 0; first -= 3)
        f(view.rows(first, std::min<std::int64_t>(3, kRows - first)), first);
    };
    {
      Pass& p = unit.pass(PassKind::kForward);
      const ScratchScope scope(p.scratch_cursor());
      const VocabParallelCrossEntropy::Rows all = cross_entropy.begin(p);
      in_pieces([&](TensorView piece, std::int64_t first) {
        cross_entropy.add_rows(p, all, piece, first, target_view);
        cross_entropy.reduce_rows(p, all, first, piece.shape()[0], target_view);
      });
      cross_entropy.report(p, all, with_rows, target_view);
    }
    serial.expect_rows(of_rows, target_logits);
    EXPECT_EQ(result, whole);
    std::vector<float> in_forward = local;
    if (c.degree == 1) {
      const TensorView all(in_forward.data(), DType::kF32, view.shape());
      cross_entropy.forward(unit.pass(PassKind::kForward), with_rows, all, target_view, SerialLoss::kScale);
      EXPECT_EQ(result, whole);
      serial.expect_rows(of_rows, target_logits);
    }
    in_pieces([&](TensorView piece, std::int64_t first) {
      cross_entropy.backward(unit.pass(PassKind::kBackward), piece, first, target_view, SerialLoss::kScale);
    });
    if (c.degree == 1) {
      EXPECT_EQ(in_forward, local) << "forward leaves what backward makes";
    }
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t v = 0; v < columns; ++v) {
        const double expected = first + v < kVocabulary ? serial.d_logits[r * kVocabulary + first + v] : 0.0;
        EXPECT_NEAR(local[r * columns + v], expected, 1e-6) << "row " << r << ", token " << first + v;
      }
  });
}

TEST_P(VocabularyTest, CrossEntropyEqualsSerial) { expect_serial_cross_entropy(GetParam(), 0); }
TEST_P(VocabularyTest, WeightedCrossEntropyEqualsSerial) {
  std::vector<float> weights(kRows);
  for (std::size_t r = 0; r < kRows; ++r) weights[r] = 0.5f - static_cast<float>(r % 4) / 4.0f;  // of both signs, and 0
  expect_serial_cross_entropy(GetParam(), 0, weights);
}
TEST_P(VocabularyTest, BoundedCrossEntropyEqualsSerial) { expect_serial_cross_entropy(GetParam(), 30); }

INSTANTIATE_TEST_SUITE_P(Degrees, VocabularyTest,
                         ::testing::Values(Case{1, false, 1}, Case{1, false, 128}, Case{2, false, 1}, Case{2, true, 4},
                                           Case{4, false, 8},  // two ranks hold nothing but padding
                                           Case{4, true, 1}),
                         [](const auto& info) { return info.param.name(); });

// Two modules of one product: beside each only its own B counts, whatever stood in the scratch that their matrix is made in.
TEST(Adapters, OfOneProductAddNothingToEachOther) {
  testing::run_tensor_ranks(1, {}, [&](TensorRank& rank) {
    constexpr std::int64_t kIn = 6, kOut = 4, kRanks = 2;
    UnitPlan plan(geometry_of({1, false}, 0), rank.device.ops());
    ParamList& list = plan.param_list();
    const ParamId a = list.add(spec_of("a", {kRanks, kIn}, {})), first = list.add(spec_of("first", {1, 1}, {})),
                  second = list.add(spec_of("second", {kOut - 1, 1}, {}));
    const LinearAdapter adapter(ActivationKind::kMlp, a, kRanks, 2.0, {},
                                {{.b = first, .columns = 1, .rank = 1},
                                 {.b = second, .first_column = 1, .columns = kOut - 1, .first_rank = 1, .rank = 1}});
    plan.run([&](Pass& p) {
      const TensorView y = dry_view(DType::kF32, {kRows, kOut});
      p.begin(PassKind::kForward);
      adapter.forward(p, dry_view(DType::kF32, {kRows, kIn}), std::span(&y, 1));
    });
    const std::vector<double> x = integers(kRows * kIn, 1), of_a = integers(kRanks * kIn, 2), of_b = integers(kOut, 3);
    PlannedUnit unit(rank, plan, {{"a", of_a}, {"first", {of_b[0]}}, {"second", {of_b.begin() + 1, of_b.end()}}});
    Tensor in = rows_of(x, {kRows, kIn}, 0), out({kRows, kOut});
    const TensorView y = out.view();
    adapter.forward(unit.pass(PassKind::kForward), in.view(), std::span(&y, 1));
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t c = 0; c < kOut; ++c) {
        double z = 0;
        for (std::size_t k = 0; k < kIn; ++k) z += x[r * kIn + k] * of_a[(c == 0 ? 0 : kIn) + k];
        EXPECT_EQ(out.values[r * kOut + c], -77 + 2 * z * of_b[c]) << "row " << r << ", column " << c;
      }
  });
}

}  // namespace
}  // namespace trident
