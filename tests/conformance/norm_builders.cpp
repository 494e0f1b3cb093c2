// Cases of the norms.
#include "device/operations.h"
#include "device/ops.h"
#include "tests/conformance/builders.h"
#include "tests/support/reference_ops.h"

namespace trident::conformance {

namespace {

using Views = std::span<const TensorView>;

constexpr float kEps = 1e-5f;
constexpr double kMean = 3.0;  // of LayerNorm's inputs: the variance is a difference then

OpCase norm_case(std::string op, DType t, Index R, Index H) {
  OpCase c;
  c.op = std::move(op);
  c.dtype = t;
  c.variant = fmt::format("{}x{}", R, H);
  return c;
}

void name_options(OpCase& c, Gradient d_x, Accumulate weight) {
  if (d_x != Gradient::kOverwrite) c.variant += d_x == Gradient::kAdd ? "_add_x" : "_in_place";
  if (weight == Accumulate::kYes) c.variant += "_add_weight";
}

Accumulate accumulate_x(Gradient d_x) { return d_x == Gradient::kAdd ? Accumulate::kYes : Accumulate::kNo; }

Operand d_x_operand(DType t, Index R, Index H, Gradient d_x) {
  const Tolerance tolerance = rounded(t, kSumNoise);
  return d_x == Gradient::kOverwrite ? output("d_x", t, {R, H}, tolerance)
                                     : in_place(d_x == Gradient::kAdd ? "d_x" : "d_y", t, {R, H}, tolerance);
}

void add_to(Values& sum, const Values& terms) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += terms[i];
}

}  // namespace

OpCase rms_norm_forward(DType t, Index R, Index H) {
  OpCase c = norm_case("rms_norm_forward", t, R, H);
  c.operands = {output("y", t, {R, H}, rounded(t, kElementNoise, 2)),
                output("rstd", DType::kF32, {R}, rounded(DType::kF32, kElementNoise)), input("x", t, {R, H}, normal(0.5)),
                input("weight", t, {H}, normal(1.0, 0.3))};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::RmsNormForward{{v[0], v[1], v[2], v[3], kEps}});
  };
  c.reference = [=](std::vector<Values>& v) {
    reference::rms_norm_forward(v[0].data(), v[1].data(), v[2].data(), v[3].data(), R, H, double{kEps});
  };
  return c;
}

namespace {

// Adds operands behind those that there are: the residual, and the bias where there is one; x, operand `x`, gets them.
void add_summands(OpCase& c, DType t, Index R, Index H, bool bias, std::size_t x) {
  c.variant += bias ? "_bias_residual" : "_residual";
  c.operands[x] = in_place("x", t, {R, H}, rounded(t, kElementNoise), c.operands[x].draw);
  const std::size_t first = c.operands.size();
  c.operands.push_back(input("residual", t, {R, H}));
  if (bias) c.operands.push_back(input("summed bias", t, {H}));
  // The norm is of the rounded sum.
  for (Operand& operand : c.operands) {
    if (operand.role != Role::kOutput) continue;
    operand.tolerance.relative += 2 * unit_roundoff(t);
    operand.tolerance.floor += 2 * unit_roundoff(t);
  }
  c.reference = [=, norm = c.reference](std::vector<Values>& v) {
    for (Index r = 0; r < R; ++r)
      for (Index h = 0; h < H; ++h) {
        const auto i = static_cast<std::size_t>(r * H + h);
        v[x][i] = nearest(t, v[x][i] + (bias ? v[first + 1][static_cast<std::size_t>(h)] : 0.0) + v[first][i]);
      }
    norm(v);
  };
}

op::Summands summands_of(Views v, std::size_t first) {
  return {v.size() > first + 1 ? ConstTensorView(v[first + 1]) : ConstTensorView(), v[first]};
}

}  // namespace

OpCase residual_rms_norm(DType t, Index R, Index H, bool bias) {
  OpCase c = rms_norm_forward(t, R, H);
  add_summands(c, t, R, H, bias, 2);
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::RmsNormForward{{v[0], v[1], v[2], v[3], kEps, v[2], summands_of(v, 4)}});
  };
  return c;
}

OpCase residual_layer_norm(DType t, Index R, Index H, bool bias) {
  OpCase c = layer_norm_forward(t, R, H);
  add_summands(c, t, R, H, bias, 3);
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::LayerNormForward{{v[0], v[2], v[3], v[4], kEps, v[3], summands_of(v, 6)}, v[1], v[5]});
  };
  return c;
}

OpCase rms_norm_backward(DType t, Index R, Index H, Gradient d_x, Accumulate weight) {
  OpCase c = norm_case("rms_norm_backward", t, R, H);
  name_options(c, d_x, weight);
  const std::size_t d_y = d_x == Gradient::kInPlace ? 0 : 5;
  // The normalised x that d_weight sums was rounded to T by the forward pass.
  const Tolerance d_weight{.relative = kSumNoise, .floor = kSumNoise + 2 * unit_roundoff(t)};
  c.operands = {d_x_operand(t, R, H, d_x), result("d_weight", DType::kF32, {H}, weight, d_weight),
                input("x", t, {R, H}, normal(0.5)), input("weight", t, {H}, normal(1.0, 0.3)), input("rstd", DType::kF32, {R})};
  if (d_y == 5) c.operands.push_back(input("d_y", t, {R, H}));
  c.derive = [=](std::vector<Values>& v) {
    Values y(v[2].size());
    reference::rms_norm_forward(y.data(), v[4].data(), v[2].data(), v[3].data(), R, H, double{kEps});
  };
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::RmsNormBackward{{v[0], v[1], v[d_y], v[2], v[3], v[4], accumulate_x(d_x), weight}});
  };
  c.reference = [=](std::vector<Values>& v) {
    const Values old = v[0], gradient = v[d_y];
    reference::rms_norm_backward(v[0].data(), v[1].data(), gradient.data(), v[2].data(), v[3].data(), v[4].data(), R, H);
    if (d_x == Gradient::kAdd) add_to(v[0], old);
  };
  return c;
}

OpCase rms_norm_squares(DType t, Index R, Index H) {
  OpCase c = norm_case("rms_norm_squares", t, R, H);
  c.operands = {output("squares", DType::kF32, {R}, rounded(DType::kF32, kSumNoise)), input("x", t, {R, H}, normal(0.5))};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::RmsNormSquares{v[0], v[1]}); };
  c.reference = [=](std::vector<Values>& v) { reference::rms_norm_squares(v[0].data(), v[1].data(), R, H); };
  return c;
}

namespace {

constexpr Index kParts = 3;

// Sums over all parts, of which x is one.
void sum_parts(Values& sums) {
  for (double& sum : sums) sum *= kParts;
}

void derive_rstd(Values& rstd, const Values& x, const Values& weight, Index R, Index H) {
  Values squares(static_cast<std::size_t>(R)), y(x.size());
  reference::rms_norm_squares(squares.data(), x.data(), R, H);
  sum_parts(squares);
  reference::rms_norm_apply(y.data(), rstd.data(), x.data(), weight.data(), squares.data(), R, H, kParts * H, double{kEps});
}

}  // namespace

OpCase rms_norm_apply(DType t, Index R, Index H) {
  OpCase c = norm_case("rms_norm_apply", t, R, H);
  c.operands = {output("y", t, {R, H}, rounded(t, kElementNoise)),
                output("rstd", DType::kF32, {R}, rounded(DType::kF32, kElementNoise)), input("x", t, {R, H}, normal(0.5)),
                input("weight", t, {H}, normal(1.0, 0.3)), input("squares", DType::kF32, {R})};
  c.derive = [=](std::vector<Values>& v) {
    reference::rms_norm_squares(v[4].data(), v[2].data(), R, H);
    sum_parts(v[4]);
  };
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::RmsNormApply{{v[0], v[1], v[2], v[3], kEps}, v[4], kParts * H});
  };
  c.reference = [=](std::vector<Values>& v) {
    reference::rms_norm_apply(v[0].data(), v[1].data(), v[2].data(), v[3].data(), v[4].data(), R, H, kParts * H, double{kEps});
  };
  return c;
}

OpCase rms_norm_dots(DType t, Index R, Index H) {
  OpCase c = norm_case("rms_norm_dots", t, R, H);
  c.operands = {output("dots", DType::kF32, {R}, {.relative = kSumNoise, .floor = kSumNoise}), input("d_y", t, {R, H}),
                input("x", t, {R, H}, normal(0.5)), input("weight", t, {H}, normal(1.0, 0.3))};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::RmsNormDots{v[0], v[1], v[2], v[3]}); };
  c.reference = [=](std::vector<Values>& v) { reference::rms_norm_dots(v[0].data(), v[1].data(), v[2].data(), v[3].data(), R, H); };
  return c;
}

OpCase rms_norm_apply_backward(DType t, Index R, Index H, Gradient d_x, Accumulate weight) {
  OpCase c = norm_case("rms_norm_apply_backward", t, R, H);
  name_options(c, d_x, weight);
  const std::size_t d_y = d_x == Gradient::kInPlace ? 0 : 6;
  c.operands = {d_x_operand(t, R, H, d_x),          result("d_weight", DType::kF32, {H}, weight, rounded(DType::kF32, kSumNoise)),
                input("x", t, {R, H}, normal(0.5)), input("weight", t, {H}, normal(1.0, 0.3)),
                input("rstd", DType::kF32, {R}),    input("dots", DType::kF32, {R})};
  if (d_y == 6) c.operands.push_back(input("d_y", t, {R, H}));
  c.derive = [=](std::vector<Values>& v) { derive_rstd(v[4], v[2], v[3], R, H); };
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::RmsNormApplyBackward{{v[0], v[1], v[d_y], v[2], v[3], v[4], accumulate_x(d_x), weight}, v[5], kParts * H});
  };
  c.reference = [=](std::vector<Values>& v) {
    const Values old = v[0], gradient = v[d_y];
    reference::rms_norm_apply_backward(v[0].data(), v[1].data(), gradient.data(), v[2].data(), v[3].data(), v[4].data(),
                                       v[5].data(), R, H, kParts * H);
    if (d_x == Gradient::kAdd) add_to(v[0], old);
  };
  return c;
}

OpCase layer_norm_forward(DType t, Index R, Index H) {
  OpCase c = norm_case("layer_norm_forward", t, R, H);
  const Tolerance statistics = rounded(DType::kF32, kElementNoise);
  c.operands = {output("y", t, {R, H}, rounded(t, kSumNoise)), output("mean", DType::kF32, {R}, statistics),
                output("rstd", DType::kF32, {R}, statistics),  input("x", t, {R, H}, normal(kMean)),
                input("weight", t, {H}, normal(1.0, 0.3)),     input("bias", t, {H})};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::LayerNormForward{{v[0], v[2], v[3], v[4], kEps}, v[1], v[5]});
  };
  c.reference = [=](std::vector<Values>& v) {
    reference::layer_norm_forward(v[0].data(), v[1].data(), v[2].data(), v[3].data(), v[4].data(), v[5].data(), R, H, double{kEps});
  };
  return c;
}

OpCase layer_norm_backward(DType t, Index R, Index H, Gradient d_x, Accumulate weight) {
  OpCase c = norm_case("layer_norm_backward", t, R, H);
  name_options(c, d_x, weight);
  const std::size_t d_y = d_x == Gradient::kInPlace ? 0 : 7;
  const Tolerance sums = rounded(DType::kF32, kSumNoise);
  c.operands = {d_x_operand(t, R, H, d_x),
                result("d_weight", DType::kF32, {H}, weight, sums),
                result("d_bias", DType::kF32, {H}, weight, sums),
                input("x", t, {R, H}, normal(kMean)),
                input("weight", t, {H}, normal(1.0, 0.3)),
                input("mean", DType::kF32, {R}),
                input("rstd", DType::kF32, {R})};
  if (d_y == 7) c.operands.push_back(input("d_y", t, {R, H}));
  c.derive = [=](std::vector<Values>& v) {
    Values y(v[3].size()), bias(v[4].size());
    reference::layer_norm_forward(y.data(), v[5].data(), v[6].data(), v[3].data(), v[4].data(), bias.data(), R, H, double{kEps});
  };
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::LayerNormBackward{{v[0], v[1], v[d_y], v[3], v[4], v[6], accumulate_x(d_x), weight}, v[2], v[5]});
  };
  c.reference = [=](std::vector<Values>& v) {
    const Values old = v[0], gradient = v[d_y];
    reference::layer_norm_backward(v[0].data(), v[1].data(), v[2].data(), gradient.data(), v[3].data(), v[4].data(), v[5].data(),
                                   v[6].data(), R, H);
    if (d_x == Gradient::kAdd) add_to(v[0], old);
  };
  return c;
}

}  // namespace trident::conformance
