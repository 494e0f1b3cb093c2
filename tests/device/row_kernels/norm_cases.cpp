#include "case_table.h"
#include "tests/support/reference_ops.h"

namespace trident::testing {
namespace {

// One norm case works on these.
struct NormInputs {
  NormInputs(RowType t, Index rows, Index width, double mean)
      : random(static_cast<unsigned>(rows * 1000 + width)),
        x(random.values(t, rows * width, mean)),
        weight(random.values(t, width, 1.0, 0.3)),
        bias(random.values(t, width)),
        d_y(random.values(t, rows * width)) {}
  Random random;
  Values x, weight, bias, d_y;
};

Values zeros(Index count) { return Values(static_cast<std::size_t>(count)); }

void rms_forward(const RowKernels& k, RowType t, Index rows, Index width) {
  NormInputs in(t, rows, width, 0.5);
  Values y = zeros(rows * width), rstd = zeros(rows);
  reference::rms_norm_forward(y.data(), rstd.data(), in.x.data(), in.weight.data(), rows, width, 1e-5);
  Operand out(t, rows * width), scale(RowType::kF32, rows), x(t, in.x), weight(t, in.weight);
  k.rms_norm_forward(t, out.data(), scale.floats(), x.data(), weight.data(), rows, width, 1e-5f);
  expect_close(out.values(), y, t, "y", t == RowType::kF32 ? 3e-6 : 1.0 / 512);
  expect_close(scale.values(), rstd, RowType::kF32, "rstd");
}

void layer_forward(const RowKernels& k, RowType t, Index rows, Index width) {
  NormInputs in(t, rows, width, 3.0);
  Values y = zeros(rows * width), mean = zeros(rows), rstd = zeros(rows);
  reference::layer_norm_forward(y.data(), mean.data(), rstd.data(), in.x.data(), in.weight.data(), in.bias.data(), rows, width,
                                1e-5);
  Operand out(t, rows * width), m(RowType::kF32, rows), s(RowType::kF32, rows), x(t, in.x), weight(t, in.weight), bias(t, in.bias);
  k.layer_norm_forward(t, out.data(), m.floats(), s.floats(), x.data(), weight.data(), bias.data(), rows, width, 1e-5f);
  expect_close(out.values(), y, t, "y", 1e-5);
  expect_close(m.values(), mean, RowType::kF32, "mean");
  expect_close(s.values(), rstd, RowType::kF32, "rstd");
}

// To the bit the sum and then the norm.
void residual_case(const RowKernels& k, RowType t, Index rows, Index width, bool layer, bool biased) {
  NormInputs in(t, rows, width, 3.0);
  Operand x(t, in.x), residual(t, in.d_y), bias(t, in.bias), weight(t, in.weight), y(t, rows * width), mean(RowType::kF32, rows),
      rstd(RowType::kF32, rows);
  Operand sum = x, expected_y = y, expected_mean = mean, expected_rstd = rstd;
  if (biased)
    k.add_bias_residual(t, sum.data(), bias.data(), residual.data(), rows, width);
  else
    k.add(t, sum.data(), sum.data(), residual.data(), rows * width);
  const void* const summed_bias = biased ? bias.data() : nullptr;
  if (layer) {
    k.layer_norm_forward(t, expected_y.data(), expected_mean.floats(), expected_rstd.floats(), sum.data(), weight.data(),
                         bias.data(), rows, width, 1e-5f);
    k.residual_layer_norm(t, y.data(), mean.floats(), rstd.floats(), x.data(), summed_bias, residual.data(), weight.data(),
                          bias.data(), rows, width, 1e-5f);
  } else {
    k.rms_norm_forward(t, expected_y.data(), expected_rstd.floats(), sum.data(), weight.data(), rows, width, 1e-5f);
    k.residual_rms_norm(t, y.data(), rstd.floats(), x.data(), summed_bias, residual.data(), weight.data(), rows, width, 1e-5f);
  }
  EXPECT_EQ(x.bits(), sum.bits());
  EXPECT_EQ(y.bits(), expected_y.bits());
  EXPECT_EQ(mean.bits(), expected_mean.bits());
  EXPECT_EQ(rstd.bits(), expected_rstd.bits());
}

void add_bias_residual_case(const RowKernels& k, RowType t, Index rows, Index width) {
  NormInputs in(t, rows, width, 0.5);
  Operand x(t, in.x), bias(t, in.bias), residual(t, in.d_y);
  Values expected = sum_of(in.x, in.d_y);
  reference::add_bias(expected.data(), in.bias.data(), rows, width);
  k.add_bias_residual(t, x.data(), bias.data(), residual.data(), rows, width);
  expect_close(x.values(), expected, t, "x");
}

enum class Target { kOverwrite, kAccumulate, kAliasDy };

template <class Backward>
void check_backward(RowType t, const NormInputs& in, Target target, Values expected_x, const Backward& backward) {
  NormInputs before(in);
  const Values old = before.random.values(t, static_cast<Index>(in.x.size()));
  if (target == Target::kAccumulate) expected_x = sum_of(expected_x, old);
  Operand d_y(t, in.d_y), d_x(t, old);
  Operand& out = target == Target::kAliasDy ? d_y : d_x;
  backward(out.data(), d_y.data(), target == Target::kAccumulate ? Accumulate::kYes : Accumulate::kNo);
  expect_close(out.values(), expected_x, t, "d_x", 1e-5);
  if (target != Target::kAliasDy) {
    EXPECT_EQ(d_y.values(), in.d_y);
  }
}

// Parameter gradients start at 0.5 and are kept when accumulating.
double start_of(Accumulate accumulate) { return accumulate == Accumulate::kYes ? 0.5 : 0.0; }

void rms_backward(const RowKernels& k, RowType t, Index rows, Index width, Target target, Accumulate accumulate_weight) {
  const NormInputs in(t, rows, width, 0.5);
  Values y = zeros(rows * width), rstd = zeros(rows), d_x = zeros(rows * width);
  Values d_weight(static_cast<std::size_t>(width), start_of(accumulate_weight));
  reference::rms_norm_forward(y.data(), rstd.data(), in.x.data(), in.weight.data(), rows, width, 1e-5);
  reference::rms_norm_backward(d_x.data(), d_weight.data(), in.d_y.data(), in.x.data(), in.weight.data(), rstd.data(), rows, width);
  Operand x(t, in.x), weight(t, in.weight), scale(RowType::kF32, rstd);
  Operand weight_gradient(RowType::kF32, Values(static_cast<std::size_t>(width), 0.5));
  check_backward(t, in, target, d_x, [&](void* out, const void* d_y, Accumulate accumulate_x) {
    k.rms_norm_backward(t, out, weight_gradient.floats(), d_y, x.data(), weight.data(), scale.floats(), rows, width, accumulate_x,
                        accumulate_weight);
  });
  expect_close(weight_gradient.values(), d_weight, RowType::kF32, "d_weight", t == RowType::kF32 ? 3e-6 : 1.0 / 128);
}

// x is the first of three parts of its rows: sums over all are three times its own.
constexpr Index kParts = 3;

struct PartSums {
  PartSums(const NormInputs& in, Index rows, Index width) : squares(zeros(rows)), dots(zeros(rows)), rstd(zeros(rows)), y(in.x) {
    reference::rms_norm_squares(squares.data(), in.x.data(), rows, width);
    reference::rms_norm_dots(dots.data(), in.d_y.data(), in.x.data(), in.weight.data(), rows, width);
    all_squares = squares;
    all_dots = dots;
    for (Values* sums : {&all_squares, &all_dots})
      for (double& sum : *sums) sum *= kParts;
    reference::rms_norm_apply(y.data(), rstd.data(), in.x.data(), in.weight.data(), all_squares.data(), rows, width, kParts * width,
                              1e-5);
  }
  Values squares, dots, all_squares, all_dots, rstd, y;
};

void rms_squares(const RowKernels& k, RowType t, Index rows, Index width) {
  const NormInputs in(t, rows, width, 0.5);
  Operand x(t, in.x), squares(RowType::kF32, rows);
  k.rms_norm_squares(t, squares.floats(), x.data(), rows, width);
  expect_close(squares.values(), PartSums(in, rows, width).squares, RowType::kF32, "squares");
}

void rms_dots(const RowKernels& k, RowType t, Index rows, Index width) {
  const NormInputs in(t, rows, width, 0.5);
  Operand x(t, in.x), d_y(t, in.d_y), weight(t, in.weight), dots(RowType::kF32, rows);
  k.rms_norm_dots(t, dots.floats(), d_y.data(), x.data(), weight.data(), rows, width);
  expect_close(dots.values(), PartSums(in, rows, width).dots, RowType::kF32, "dots", 1e-5);
}

void rms_apply(const RowKernels& k, RowType t, Index rows, Index width) {
  const NormInputs in(t, rows, width, 0.5);
  const PartSums sums(in, rows, width);
  Operand out(t, rows * width), rstd(RowType::kF32, rows), x(t, in.x), weight(t, in.weight),
      squares(RowType::kF32, sums.all_squares);
  k.rms_norm_apply(t, out.data(), rstd.floats(), x.data(), weight.data(), squares.floats(), rows, width, kParts * width, 1e-5f);
  expect_close(out.values(), sums.y, t, "y");
  expect_close(rstd.values(), sums.rstd, RowType::kF32, "rstd");
}

void rms_apply_backward(const RowKernels& k, RowType t, Index rows, Index width, Target target, Accumulate accumulate_weight) {
  const NormInputs in(t, rows, width, 0.5);
  const PartSums sums(in, rows, width);
  Values d_x = zeros(rows * width), d_weight(static_cast<std::size_t>(width), start_of(accumulate_weight));
  reference::rms_norm_apply_backward(d_x.data(), d_weight.data(), in.d_y.data(), in.x.data(), in.weight.data(), sums.rstd.data(),
                                     sums.all_dots.data(), rows, width, kParts * width);
  Operand x(t, in.x), weight(t, in.weight), rstd(RowType::kF32, sums.rstd), dots(RowType::kF32, sums.all_dots);
  Operand weight_gradient(RowType::kF32, Values(static_cast<std::size_t>(width), 0.5));
  check_backward(t, in, target, d_x, [&](void* out, const void* d_y, Accumulate accumulate_x) {
    k.rms_norm_apply_backward(t, out, weight_gradient.floats(), d_y, x.data(), weight.data(), rstd.floats(), dots.floats(), rows,
                              width, kParts * width, accumulate_x, accumulate_weight);
  });
  expect_close(weight_gradient.values(), d_weight, RowType::kF32, "d_weight", 1e-5);
}

void add_parts(std::vector<OpCase>& cases, Index rows, Index width, bool every_way) {
  const std::string size = std::to_string(rows) + "x" + std::to_string(width);
  cases.push_back({"rms_norm_squares", size, [=](const RowKernels& k, RowType t) { rms_squares(k, t, rows, width); }});
  cases.push_back({"rms_norm_dots", size, [=](const RowKernels& k, RowType t) { rms_dots(k, t, rows, width); }});
  cases.push_back({"rms_norm_apply", size, [=](const RowKernels& k, RowType t) { rms_apply(k, t, rows, width); }});
  if (width == 1) return;  // d_x of one element is a difference of equals
  const auto backward = [&](const std::string& variant, Target target, Accumulate weight) {
    cases.push_back({"rms_norm_apply_backward", size + variant,
                     [=](const RowKernels& k, RowType t) { rms_apply_backward(k, t, rows, width, target, weight); }});
  };
  backward("_add_x", Target::kAccumulate, Accumulate::kNo);
  if (!every_way) return;
  backward("", Target::kOverwrite, Accumulate::kYes);
  backward("_alias", Target::kAliasDy, Accumulate::kNo);
}

void layer_backward(const RowKernels& k, RowType t, Index rows, Index width, Target target, Accumulate accumulate_weight) {
  const NormInputs in(t, rows, width, 3.0);
  Values y = zeros(rows * width), mean = zeros(rows), rstd = zeros(rows), d_x = zeros(rows * width);
  Values d_weight(static_cast<std::size_t>(width), start_of(accumulate_weight)), d_bias = d_weight;
  reference::layer_norm_forward(y.data(), mean.data(), rstd.data(), in.x.data(), in.weight.data(), in.bias.data(), rows, width,
                                1e-5);
  reference::layer_norm_backward(d_x.data(), d_weight.data(), d_bias.data(), in.d_y.data(), in.x.data(), in.weight.data(),
                                 mean.data(), rstd.data(), rows, width);
  Operand x(t, in.x), weight(t, in.weight), m(RowType::kF32, mean), s(RowType::kF32, rstd);
  Operand weight_gradient(RowType::kF32, Values(static_cast<std::size_t>(width), 0.5)), bias_gradient = weight_gradient;
  check_backward(t, in, target, d_x, [&](void* out, const void* d_y, Accumulate accumulate_x) {
    k.layer_norm_backward(t, out, weight_gradient.floats(), bias_gradient.floats(), d_y, x.data(), weight.data(), m.floats(),
                          s.floats(), rows, width, accumulate_x, accumulate_weight);
  });
  expect_close(weight_gradient.values(), d_weight, RowType::kF32, "d_weight", 1e-5);
  expect_close(bias_gradient.values(), d_bias, RowType::kF32, "d_bias", 1e-5);
}

}  // namespace

std::vector<OpCase> norm_cases() {
  std::vector<OpCase> cases;
  for (const Index width : kWidths)
    for (const Index rows : {0, 1, 5}) {
      add_parts(cases, rows, width, true);
      if (width == 1 && rows > 0) continue;  // LayerNorm of one element divides rounding errors by sqrt(eps)
      const std::string size = std::to_string(rows) + "x" + std::to_string(width);
      for (const bool layer : {false, true})
        for (const bool biased : {false, true})
          cases.push_back({layer ? "residual_layer_norm" : "residual_rms_norm", size + (biased ? "_bias" : ""),
                           [=](const RowKernels& k, RowType t) { residual_case(k, t, rows, width, layer, biased); }});
      cases.push_back({"add_bias_residual", size,
                       [=](const RowKernels& k, RowType t) { add_bias_residual_case(k, t, rows, width); }});
      cases.push_back({"rms_norm_forward", size, [=](const RowKernels& k, RowType t) { rms_forward(k, t, rows, width); }});
      cases.push_back({"layer_norm_forward", size, [=](const RowKernels& k, RowType t) { layer_forward(k, t, rows, width); }});
      for (const Target target : {Target::kOverwrite, Target::kAccumulate, Target::kAliasDy})
        for (const Accumulate weight : {Accumulate::kNo, Accumulate::kYes}) {
          const std::string variant = size +
                                      (target == Target::kOverwrite    ? ""
                                       : target == Target::kAccumulate ? "_add_x"
                                                                       : "_alias") +
                                      (weight == Accumulate::kYes ? "_add_weight" : "");
          cases.push_back({"rms_norm_backward", variant,
                           [=](const RowKernels& k, RowType t) { rms_backward(k, t, rows, width, target, weight); }});
          cases.push_back({"layer_norm_backward", variant,
                           [=](const RowKernels& k, RowType t) { layer_backward(k, t, rows, width, target, weight); }});
        }
    }
  // Rows in every number that kernels treat in ways of their own, and many rows, whose sums are taken in parts.
  for (const auto& [rows, width] : std::vector<std::pair<Index, Index>>{
           {3, 520}, {3, 2056}, {2, 4104}, {2, kLongWidth}, {150, 64}, {70, 65}, {40, 520}, {20, 521}}) {
    const std::string size = std::to_string(rows) + "x" + std::to_string(width);
    add_parts(cases, rows, width, false);
    cases.push_back({"rms_norm_forward", size, [r = rows, w = width](const RowKernels& k, RowType t) { rms_forward(k, t, r, w); }});
    cases.push_back(
        {"layer_norm_forward", size, [r = rows, w = width](const RowKernels& k, RowType t) { layer_forward(k, t, r, w); }});
    for (const bool layer : {false, true})
      cases.push_back({layer ? "residual_layer_norm" : "residual_rms_norm", size,
                       [=, r = rows, w = width](const RowKernels& k, RowType t) { residual_case(k, t, r, w, layer, true); }});
    for (const Accumulate sums : {Accumulate::kNo, Accumulate::kYes}) {
      const std::string variant = size + (sums == Accumulate::kYes ? "_add_weight" : "");
      cases.push_back({"rms_norm_backward", variant, [r = rows, w = width, sums](const RowKernels& k, RowType t) {
                         rms_backward(k, t, r, w, Target::kAccumulate, sums);
                       }});
      cases.push_back({"layer_norm_backward", variant, [r = rows, w = width, sums](const RowKernels& k, RowType t) {
                         layer_backward(k, t, r, w, Target::kOverwrite, sums);
                       }});
    }
  }
  cases.push_back({"rms_norm_forward", "1x1", [](const RowKernels& k, RowType t) { rms_forward(k, t, 1, 1); }});
  return cases;
}

}  // namespace trident::testing
