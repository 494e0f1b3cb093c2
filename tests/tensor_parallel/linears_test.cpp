// Column- and row-parallel linears over 1, 2, 4 ranks, with and without sequence parallelism, against plain loops. Inputs are small
// integers, so every sum is exact and equality is to the last bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tensor_parallel/column_parallel_linear.h"
#include "tensor_parallel/row_parallel_linear.h"
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

  std::string name() const { return std::to_string(degree) + (sequence_parallel ? "SequenceParallel" : ""); }
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

}  // namespace
}  // namespace trident
