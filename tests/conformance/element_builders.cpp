// Cases of activations, elementwise operations, reductions and the optimizer.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/core.h>

#include "core/exact_sum.h"
#include "core/int_math.h"
#include "device/operations.h"
#include "device/ops.h"
#include "tests/conformance/builders.h"
#include "tests/support/reference_ops.h"
#include "tests/support/stochastic_rounding.h"

namespace trident::conformance {

namespace {

using Views = std::span<const TensorView>;

OpCase element_case(std::string op, DType t, std::string variant) {
  OpCase c;
  c.op = std::move(op);
  c.dtype = t;
  c.variant = std::move(variant);
  return c;
}

std::string size_name(Index rows, Index columns, const Draw& draw = normal()) {
  return fmt::format("{}x{}{}", rows, columns, draw.b > 100 ? "_wide" : "");  // so large that exp() of it overflows
}

std::string_view alias_name(Alias alias) {
  return alias == Alias::kNone ? "" : alias == Alias::kFirst ? "_in_place" : "_in_second";
}

}  // namespace

// ---- activations

OpCase swiglu_forward(DType t, Index R, Index F, Draw x) {
  OpCase c = element_case("swiglu_forward", t, size_name(R, F, x));
  c.operands = {output("out", t, {R, F}, rounded(t, kElementNoise)), input("gate_up", t, {R, 2 * F}, x)};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::SwigluForward{v[0], v[1]}); };
  c.reference = [=](std::vector<Values>& v) { reference::swiglu_forward(v[0].data(), v[1].data(), R, F); };
  return c;
}

OpCase swiglu_backward(DType t, Index R, Index F, Draw x) {
  OpCase c = element_case("swiglu_backward", t, size_name(R, F, x));
  c.operands = {output("d_gate_up", t, {R, 2 * F}, rounded(t, kElementNoise)),
                in_place("d_out", t, {R, F}, rounded(t, kElementNoise)), input("gate_up", t, {R, 2 * F}, x)};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::SwigluBackward{v[0], v[1], v[2]}); };
  c.reference = [=](std::vector<Values>& v) {
    reference::swiglu_backward(v[0].data(), v[1].data(), v[2].data(), R, F);
    reference::swiglu_forward(v[1].data(), v[2].data(), R, F);
  };
  return c;
}

OpCase gelu_forward(DType t, Index R, Index F, Draw x) {
  OpCase c = element_case("gelu_forward", t, size_name(R, F, x));
  c.operands = {output("out", t, {R, F}, rounded(t, kElementNoise)), input("x", t, {R, F}, x)};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::GeluForward{v[0], v[1]}); };
  c.reference = [=](std::vector<Values>& v) { reference::gelu_forward(v[0].data(), v[1].data(), R * F); };
  return c;
}

OpCase gelu_backward(DType t, Index R, Index F, Draw x) {
  OpCase c = element_case("gelu_backward", t, size_name(R, F, x));
  c.operands = {output("d_x", t, {R, F}, rounded(t, kElementNoise)), in_place("d_out", t, {R, F}, rounded(t, kElementNoise)),
                input("x", t, {R, F}, x)};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::GeluBackward{v[0], v[1], v[2]}); };
  c.reference = [=](std::vector<Values>& v) {
    reference::gelu_backward(v[0].data(), v[1].data(), v[2].data(), R * F);
    reference::gelu_forward(v[1].data(), v[2].data(), R * F);
  };
  return c;
}

OpCase bias_gelu(DType t, Index R, Index F, Draw x) {
  OpCase c = element_case("gelu_forward", t, size_name(R, F, x) + "_bias");
  Tolerance of_rounded_sum = rounded(t, kElementNoise, 2);
  of_rounded_sum.floor += unit_roundoff(t);  // the slope is at most 1.13, where the value may be small
  of_rounded_sum.absolute = 1e-20;           // far below 0, where the reference's tanh is -1
  c.operands = {output("out", t, {R, F}, of_rounded_sum), in_place("x", t, {R, F}, rounded(t, 1e-7), x), input("bias", t, {F}, x)};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::BiasGelu{v[0], v[1], v[2]}); };
  c.reference = [=](std::vector<Values>& v) {
    reference::add_bias(v[1].data(), v[2].data(), R, F);
    for (double& sum : v[1]) sum = nearest(t, sum);
    reference::gelu_forward(v[0].data(), v[1].data(), R * F);
  };
  return c;
}

OpCase clip_forward(DType t, Index count, float limit, Draw x) {
  OpCase c = element_case("clip_forward", t, fmt::format("{}", count));
  c.operands = {output("out", t, {count}, kExact), input("x", t, {count}, x)};
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::ClipForward{v[0], v[1], limit}); };
  c.reference = [=](std::vector<Values>& v) { reference::clip_forward<double>(v[0].data(), v[1].data(), count, limit); };
  return c;
}

OpCase clip_backward(DType t, Index count, float limit, bool aliased, Draw x) {
  OpCase c = element_case("clip_backward", t, fmt::format("{}{}", count, aliased ? "_in_place" : ""));
  c.operands = aliased ? std::vector{in_place("d", t, {count}, kExact), input("x", t, {count}, x)}
                        : std::vector{output("d_x", t, {count}, kExact), input("d_out", t, {count}), input("x", t, {count}, x)};
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::ClipBackward{v[0], v[aliased ? 0 : 1], v[aliased ? 1 : 2], limit});
  };
  c.reference = [=](std::vector<Values>& v) {
    reference::clip_backward<double>(v[0].data(), v[aliased ? 0 : 1].data(), v[aliased ? 1 : 2].data(), count, limit);
  };
  return c;
}

// ---- elementwise, copies, reductions

OpCase add_bias(DType t, Index R, Index C) {
  OpCase c = element_case("add_bias", t, size_name(R, C));
  c.operands = {in_place("x", t, {R, C}, rounded(t, 1e-7)), input("bias", t, {C})};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::AddBias{v[0], v[1]}); };
  c.reference = [=](std::vector<Values>& v) { reference::add_bias(v[0].data(), v[1].data(), R, C); };
  return c;
}

OpCase add_bias_residual(DType t, Index R, Index C) {
  OpCase c = element_case("add_bias", t, size_name(R, C) + "_residual");
  c.operands = {in_place("x", t, {R, C}, rounded(t, kElementNoise)), input("bias", t, {C}), input("residual", t, {R, C})};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::AddBias{v[0], v[1], v[2]}); };
  c.reference = [=](std::vector<Values>& v) {
    reference::add_bias(v[0].data(), v[1].data(), R, C);
    reference::add(v[0].data(), v[0].data(), v[2].data(), R * C);
  };
  return c;
}

OpCase sum_rows(DType t, Index R, Index C, Accumulate accumulate, Draw draw) {
  const bool exact = draw.kind == Draw::Kind::kIntegers;
  OpCase c =
      element_case("sum_rows", t, size_name(R, C) + (accumulate == Accumulate::kYes ? "_add" : "") + (exact ? "_integers" : ""));
  c.operands = {result("out", DType::kF32, {C}, accumulate, exact ? kExact : rounded(DType::kF32, kSumNoise), draw),
                input("x", t, {R, C}, draw)};
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::SumRows{v[0], v[1], accumulate}); };
  c.reference = [=](std::vector<Values>& v) { reference::sum_rows(v[0].data(), v[1].data(), R, C); };
  return c;
}

OpCase sum_products(DType t, Index R, Index C) {
  OpCase c = element_case("sum_rows", t, size_name(R, C) + "_times");
  const Draw small = integers(-4, 4);
  c.operands = {output("out", DType::kF32, {C}, kExact), input("x", t, {R, C}, small), input("times", t, {R, C}, small)};
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::SumRows{v[0], v[1], Accumulate::kNo, v[2]}); };
  c.reference = [=](std::vector<Values>& v) {
    for (std::size_t i = 0; i < v[1].size(); ++i) v[0][i % static_cast<std::size_t>(C)] += v[1][i] * v[2][i];
  };
  return c;
}

OpCase scale_columns(DType t, Index R, Index C, Accumulate accumulate) {
  OpCase c = element_case("scale_columns", t, size_name(R, C) + (accumulate == Accumulate::kYes ? "_add" : ""));
  c.operands = {result("out", t, {R, C}, accumulate, rounded(t, kElementNoise)), input("x", t, {R, C}),
                input("factor", DType::kF32, {C})};
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::ScaleColumns{v[0], v[1], v[2], -1, accumulate});
  };
  c.reference = [=](std::vector<Values>& v) {
    for (std::size_t i = 0; i < v[1].size(); ++i) v[0][i] += v[1][i] * (v[2][i % static_cast<std::size_t>(C)] - 1);
  };
  return c;
}

OpCase add(DType t, Index n, Alias alias) {
  OpCase c = element_case("add", t, std::to_string(n) + std::string(alias_name(alias)));
  const Tolerance tolerance = rounded(t, 1e-7);
  // Operand 0 is the output, and the input that lies there.
  c.operands = {alias == Alias::kNone ? output("out", t, {n}, tolerance) : in_place("out", t, {n}, tolerance), input("b", t, {n})};
  if (alias == Alias::kNone) c.operands.push_back(input("a", t, {n}));
  const std::size_t a = alias == Alias::kNone ? 2 : alias == Alias::kFirst ? 0 : 1, b = alias == Alias::kSecond ? 0 : 1;
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::Add{v[0], v[a], v[b]}); };
  c.reference = [=](std::vector<Values>& v) { reference::add(v[0].data(), v[a].data(), v[b].data(), n); };
  return c;
}

OpCase accumulate(Index n) {
  OpCase c = element_case("accumulate", DType::kF32, std::to_string(n));
  c.operands = {in_place("out", DType::kF32, {n}, rounded(DType::kF32, 1e-7)), input("x", DType::kF32, {n})};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::AccumulateInto{v[0], v[1]}); };
  c.reference = [=](std::vector<Values>& v) { reference::accumulate(v[0].data(), v[1].data(), n); };
  return c;
}

OpCase dropout(DType t, Index S, Index B, Index H, float probability, Alias alias, Index all_columns, Index first_column) {
  const PhiloxKey key{0x12345678u, 0x9abcdef0u};
  const Index sequence = 3 * S + 1, offset = S;
  const std::string part = all_columns > 0 ? fmt::format("of{}from{}", all_columns, first_column) : "";
  OpCase c = element_case("dropout", t, fmt::format("{}x{}x{}{}_p{:.0f}{}", S, B, H, part, 100 * probability, alias_name(alias)));
  Tolerance tolerance = rounded(t, 1e-6);
  tolerance.floor = 0, tolerance.zeros = Zeros::kExact;  // no floor: what is dropped is 0
  c.operands = {alias == Alias::kNone ? output("out", t, {S, B, H}, tolerance) : in_place("out", t, {S, B, H}, tolerance),
                // Numbers of samples of a long run: indices of elements beyond 32 bits.
                input("samples", DType::kI64, {B}, integers(0, Index{1} << 33))};
  if (alias == Alias::kNone) c.operands.push_back(input("x", t, {S, B, H}));
  const std::size_t x = alias == Alias::kNone ? 2 : 0;
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::Dropout{v[0], v[x], v[1], {probability, {key[0], key[1]}, sequence, offset, all_columns, first_column}});
  };
  c.reference = [=](std::vector<Values>& v) {
    const std::vector<std::int64_t> samples(v[1].begin(), v[1].end());
    reference::dropout(v[0].data(), v[x].data(), S, B, H, probability, key, sequence, offset, samples.data(), all_columns,
                       first_column);
  };
  return c;
}

OpCase convert(DType from, DType to, Index n) {
  OpCase c = element_case("convert", from, fmt::format("{}_to_{}", n, to_string(to)));
  c.operands = {output("out", to, {n}, kExact), input("x", from, {n}, special())};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::Convert{v[0], v[1]}); };
  c.reference = [](std::vector<Values>& v) { v[0] = v[1]; };
  return c;
}

OpCase fill_zero(DType t, Index n) {
  OpCase c = element_case("fill_zero", t, std::to_string(n));
  c.operands = {output("out", t, {n}, kExact)};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::FillZero{v[0]}); };
  c.reference = [](std::vector<Values>&) {};  // outputs begin as zeros
  return c;
}

OpCase sum_squares(Index n, Draw draw) {
  OpCase c = element_case("sum_squares", DType::kF32, std::to_string(n) + (draw.kind == Draw::Kind::kSpecial ? "_non_finite" : ""));
  c.operands = {output("out", DType::kF64, {ceil_div(n, Index{64})}, {.relative = 1e-14}), input("x", DType::kF32, {n}, draw)};
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::SumSquares{v[0], v[1]}); };
  c.reference = [=](std::vector<Values>& v) { reference::sum_squares(v[0].data(), v[1].data(), n); };
  return c;
}

OpCase add_exact(Index n, Draw draw) {
  constexpr auto kLimbs = static_cast<Index>(ExactSum::kLimbs);
  const auto sum_of = [](const Values& limbs) {
    ExactSum sum;
    std::copy(limbs.begin(), limbs.end(), sum.limbs().begin());
    return sum;
  };
  const auto set = [](Values& limbs, ExactSum& sum) {
    sum.normalise();
    limbs.assign(sum.limbs().begin(), sum.limbs().end());
  };
  OpCase c = element_case("add_exact", DType::kF32, std::to_string(n) + (draw.kind == Draw::Kind::kSpecial ? "_non_finite" : ""));
  c.operands = {in_place("limbs", DType::kI64, {kLimbs}, kExact, integers(0, 1 << 20)), input("x", DType::kF64, {n}, draw)};
  c.derive = [](std::vector<Values>& v) {  // magnitudes from 1e-300 to 1e300
    for (std::size_t i = 0; i < v[1].size(); ++i) v[1][i] *= std::pow(10.0, 10.0 * static_cast<double>(i % 61) - 300.0);
  };
  c.run = [](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::AddExact{v[0], v[1]}); };
  c.reference = [=](std::vector<Values>& v) {
    ExactSum sum = sum_of(v[0]);
    for (const double x : v[1]) sum.add(x);
    set(v[0], sum);
  };
  c.canonical = [=](std::vector<Values>& v) {
    ExactSum sum = sum_of(v[0]);
    set(v[0], sum);
  };
  return c;
}

// ---- optimizer

UpdateNumbers update_numbers(float weight_decay) {
  UpdateNumbers numbers{.lr = 1e-2f,
                        .beta1 = 0.9f,
                        .beta2 = 0.95f,
                        .eps = 1e-8f,
                        .weight_decay = weight_decay,
                        .grad_scale = 0.5f,
                        .bias_correction1 = 1.0f / (1.0f - 0.81f),
                        .bias_correction2 = 1.0f / (1.0f - 0.9025f)};
  numbers.set_update((std::uint64_t{1} << 33) + 9);
  return numbers;
}

// v: master, grad, states.
void call_update(UpdateRule rule, Ops& ops, Stream& stream, TensorView param, Views v, const UpdateNumbers& numbers,
                 const RoundedElements* at_random) {
  ops.run(stream, op::Update{.rule = rule,
                      .param = param,
                      .master = v[0],
                      .states = v.subspan(2, static_cast<std::size_t>(num_states(rule))),
                      .grad = v[1],
                      .numbers = numbers,
                      .at_random = at_random});
}

OpCase update(UpdateRule rule, DType t, Index n, float weight_decay, Alias param) {
  const UpdateNumbers p = update_numbers(weight_decay);
  const bool of_adamw = rule == UpdateRule::kAdamW;
  const DType f32 = DType::kF32;
  OpCase c = element_case(to_string(rule), t,
                          std::to_string(n) + (weight_decay == 0 ? "_no_decay" : "") + std::string(alias_name(param)));
  const Tolerance tolerance = rounded(f32, kElementNoise);
  c.operands = {in_place("master", f32, {n}, tolerance), input("grad", f32, {n}),
                in_place("m", f32, {n}, tolerance, normal(0, 0.1))};
  if (of_adamw) c.operands.push_back(in_place("v", f32, {n}, tolerance, normal(0.1, 0.03)));
  const std::size_t parameter = param == Alias::kNone ? c.operands.size() : 0;
  if (param == Alias::kNone) c.operands.push_back(output("param", t, {n}, rounded(t, kElementNoise)));
  if (of_adamw)
    c.derive = [](std::vector<Values>& v) {
      for (double& x : v[3]) x = std::abs(x);
    };
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) { call_update(rule, ops, stream, v[parameter], v, p, nullptr); };
  c.reference = [=](std::vector<Values>& v) {
    if (of_adamw)
      reference::adamw(v[0].data(), v[2].data(), v[3].data(), v[1].data(), n,
                       reference::AdamW<double>{p.lr, p.beta1, p.beta2, p.eps, p.weight_decay, p.grad_scale, p.bias_correction1,
                                                p.bias_correction2});
    else
      reference::lion(v[0].data(), v[2].data(), v[1].data(), n,
                      reference::Lion<double>{p.lr, p.beta1, p.beta2, p.weight_decay, p.grad_scale});
    v[parameter] = v[0];
  };
  return c;
}

// The right neighbour depends on the last bit of the master, so parameters are judged by the master
// beside them: results are 1 where they are wrong.
OpCase update_at_random(UpdateRule rule, Index n, const RoundedElements& elements) {
  const UpdateNumbers p = update_numbers(0.1f);
  OpCase c = update(rule, DType::kBF16, n, p.weight_decay, Alias::kNone);
  const std::size_t parameter = c.operands.size() - 1;
  c.variant +=
      fmt::format("_at_random_{}_{}_{}_of_{}", elements.first_index, elements.first_column, elements.columns, elements.stride);
  c.operands[parameter].tolerance = kExact;
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) { call_update(rule, ops, stream, v[parameter], v, p, &elements); };
  c.reference = [=, to_nearest = c.reference](std::vector<Values>& v) {
    to_nearest(v);
    v[parameter].assign(static_cast<std::size_t>(n), 0.0);
  };
  c.canonical = [=](std::vector<Values>& v) {
    for (Index i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::uint32_t bits = testing::rounding_bits(elements, p.update_number(), testing::tensor_element(elements, i));
      v[parameter][at] = v[parameter][at] == to_float(testing::rounded_at_random(static_cast<float>(v[0][at]), bits)) ? 0 : 1;
    }
  };
  return c;
}

}  // namespace trident::conformance
