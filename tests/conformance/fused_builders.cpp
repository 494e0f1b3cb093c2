// Cases of products and what follows them.
#include <algorithm>
#include <cmath>

#include "device/operations.h"
#include "device/ops.h"
#include "tests/conformance/builders.h"
#include "tests/support/reference_attention.h"
#include "tests/support/reference_ops.h"

namespace trident::conformance {

namespace {

using Views = std::span<const TensorView>;

// Scratch memory comes before the product's own workspace.
constexpr Index kWorkspaceAlignment = 256;

std::string variant_of(const MatmulShape& s, const Draw& draw) {
  const auto letter = [](Transpose t) { return t == Transpose::kYes ? 't' : 'n'; };
  return fmt::format("{}x{}x{}_{}{}{}{}", s.m, s.n, s.k, letter(s.transpose_a), letter(s.transpose_b),
                     s.accumulate == Accumulate::kYes ? "_add" : "", draw.kind == Draw::Kind::kIntegers ? "_integers" : "");
}

OpCase fused_case(std::string op, const MatmulShape& s, Epilogue epilogue, const Draw& draw) {
  OpCase c;
  c.op = std::move(op);
  c.dtype = s.in;
  c.variant = variant_of(s, draw);
  c.flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  c.prepare = [=](Ops& ops) { return ops.prepare_fused(s, epilogue).workspace; };
  return c;
}

Operand operand_a(const MatmulShape& s, const Draw& draw) {
  return input("a", s.in, s.transpose_a == Transpose::kYes ? Shape{s.k, s.m} : Shape{s.m, s.k}, draw);
}
Operand operand_b(const MatmulShape& s, const Draw& draw) {
  return input("b", s.in, s.transpose_b == Transpose::kYes ? Shape{s.n, s.k} : Shape{s.k, s.n}, draw);
}

// f32 sums, rounded once or, where the two are done one by one, after the product too; that may be larger than the result.
Tolerance rounded_product(const MatmulShape& s, const Draw& draw, int roundings) {
  if (draw.kind == Draw::Kind::kIntegers) return kExact;
  Tolerance tolerance = rounded(s.in, kSumNoise);
  tolerance.floor += roundings * unit_roundoff(s.in);
  tolerance.terms = std::sqrt(static_cast<double>(s.k));
  return tolerance;
}

MatmulOperands product(const MatmulShape& s, TensorView out, ConstTensorView a, ConstTensorView b, TensorView workspace) {
  return {out, a, s.transpose_a, b, s.transpose_b, s.accumulate, workspace};
}

void multiply(Ops& ops, Stream& stream, const MatmulOperands& p) {
  ops.run(stream, op::Matmul{{p.out, p.a, p.transpose_a, p.b, p.transpose_b, p.accumulate, p.workspace}});
}

void reference_product(const MatmulShape& s, Values& out, const Values& a, const Values& b) {
  reference::matmul(out.data(), a.data(), s.transpose_a == Transpose::kYes, b.data(), s.transpose_b == Transpose::kYes, s.m, s.n,
                    s.k, s.accumulate == Accumulate::kYes);
}

}  // namespace

OpCase matmul_bias(const MatmulShape& s, Draw draw) {
  OpCase c = fused_case("matmul_bias", s, Epilogue::kBias, draw);
  c.operands = {output("out", s.out, {s.m, s.n}, rounded_product(s, draw, 1)), operand_a(s, draw), operand_b(s, draw),
                input("bias", s.in, {s.n}, draw)};
  c.run = [s](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    ops.matmul_bias(stream, product(s, v[0], v[1], v[2], workspace), v[3]);
  };
  c.one_by_one = [s](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    multiply(ops, stream, product(s, v[0], v[1], v[2], workspace));
    ops.run(stream, op::AddBias{v[0], v[3]});
  };
  c.reference = [s](std::vector<Values>& v) {
    reference_product(s, v[0], v[1], v[2]);
    reference::add_bias(v[0].data(), v[3].data(), s.m, s.n);
  };
  return c;
}

// Layers ask for it by try_fused(), and have other operations add where that does nothing.
OpCase matmul_summands(const MatmulShape& s, bool residual, Index rank, Draw draw) {
  OpCase c = fused_case("matmul", s, Epilogue::kSummands, draw);
  c.variant += fmt::format("{}_rank_{}", residual ? "_residual" : "", rank);
  c.flops += 2.0 * static_cast<double>(s.m * s.n * rank);
  c.prepare = [=](Ops& ops) {
    MatmulShape outer{s.m, s.n, rank, Transpose::kNo, s.transpose_b, s.in, s.out, Accumulate::kYes};
    return std::max(ops.prepare_fused(s, Epilogue::kSummands, rank).workspace, rank == 0 ? 0 : ops.prepare_matmul(outer));
  };
  const Shape stored = s.transpose_b == Transpose::kYes ? Shape{s.n, rank} : Shape{rank, s.n};
  c.operands = {output("out", s.out, {s.m, s.n}, rounded_product(s, draw, 2)), operand_a(s, draw), operand_b(s, draw),
                input("residual", s.out, {s.m, s.n}, draw), input("inner", s.in, {s.m, rank}, draw),
                input("outer", s.in, stored, draw)};
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    const MatmulOperands p = product(s, v[0], v[1], v[2], workspace);
    FusedMatmul fused{.epilogue = Epilogue::kSummands, .product = p};
    if (residual) fused.residual = v[3];
    if (rank > 0) fused.inner = v[4], fused.outer = v[5];
    if (ops.try_fused(stream, fused)) return;
    multiply(ops, stream, p);
    if (rank > 0) multiply(ops, stream, {v[0], v[4], Transpose::kNo, v[5], s.transpose_b, Accumulate::kYes, workspace});
    if (residual) ops.run(stream, op::Add{.out = v[0], .a = v[0], .b = v[3]});
  };
  c.reference = [=](std::vector<Values>& v) {
    reference_product(s, v[0], v[1], v[2]);
    Values low_rank(v[0].size());
    const MatmulShape outer{s.m, s.n, rank, Transpose::kNo, s.transpose_b, s.in, s.out, Accumulate::kNo};
    if (rank > 0) reference_product(outer, low_rank, v[4], v[5]);
    for (std::size_t i = 0; i < v[0].size(); ++i) v[0][i] += low_rank[i] + (residual ? v[3][i] : 0);
  };
  return c;
}

OpCase matmul_bias_gelu(const MatmulShape& s) {
  OpCase c = fused_case("matmul_bias_gelu", s, Epilogue::kBiasGelu, normal());
  c.operands = {output("pre", s.out, {s.m, s.n}, rounded_product(s, normal(), 1)),
                output("activation", s.out, {s.m, s.n}, rounded_product(s, normal(), 3)), operand_a(s, normal()),
                operand_b(s, normal()), input("bias", s.in, {s.n})};
  c.run = [s](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    ops.matmul_bias_gelu(stream, product(s, v[0], v[2], v[3], workspace), v[4], v[1]);
  };
  c.one_by_one = [s](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    multiply(ops, stream, product(s, v[0], v[2], v[3], workspace));
    ops.run(stream, op::AddBias{v[0], v[4]});
    ops.run(stream, op::GeluForward{v[1], v[0]});
  };
  c.reference = [s](std::vector<Values>& v) {
    reference_product(s, v[0], v[2], v[3]);
    reference::add_bias(v[0].data(), v[4].data(), s.m, s.n);
    reference::gelu_forward(v[1].data(), v[0].data(), s.m * s.n);
  };
  return c;
}

OpCase matmul_gelu_backward(const MatmulShape& s) {
  OpCase c = fused_case("matmul_gelu_backward", s, Epilogue::kGeluBackward, normal());
  c.operands = {output("d_pre", s.out, {s.m, s.n}, rounded(s.out, kSumNoise, 2)), operand_a(s, normal()), operand_b(s, normal()),
                input("pre", s.out, {s.m, s.n}, normal(0, 2)), output("out", s.out, {s.m, s.n}, rounded(s.out, kElementNoise))};
  const auto product_of = [=](Views v, TensorView workspace) { return product(s, v[4], v[1], v[2], workspace); };
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    ops.matmul_gelu_backward(stream, product_of(v, workspace), v[3], v[0]);
  };
  c.one_by_one = [=](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    multiply(ops, stream, product_of(v, workspace));
    ops.run(stream, op::GeluBackward{v[0], v[4], v[3]});
  };
  c.reference = [s](std::vector<Values>& v) {
    Values d_out(v[0].size());
    reference_product(s, d_out, v[1], v[2]);
    reference::gelu_backward(v[0].data(), d_out.data(), v[3].data(), s.m * s.n);
    reference::gelu_forward(v[4].data(), v[3].data(), s.m * s.n);
  };
  return c;
}

OpCase matmul_bias_gradient(DType t, Index out_columns, Index in_columns, Index rows, Accumulate accumulate, Draw draw) {
  const MatmulShape s{out_columns, in_columns, rows, Transpose::kYes, Transpose::kNo, t, DType::kF32, accumulate};
  const Tolerance tolerance = draw.kind == Draw::Kind::kIntegers ? kExact : rounded(DType::kF32, kSumNoise);
  OpCase c = fused_case("matmul_bias_gradient", s, Epilogue::kBiasGradient, draw);
  c.operands = {result("d_weight", DType::kF32, {s.m, s.n}, accumulate, tolerance, draw),
                result("d_bias", DType::kF32, {s.m}, accumulate, tolerance, draw), operand_a(s, draw), operand_b(s, draw)};
  c.run = [s](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    ops.matmul_bias_gradient(stream, product(s, v[0], v[2], v[3], workspace), v[1]);
  };
  c.one_by_one = [s](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    ops.run(stream, op::SumRows{v[1], v[2], s.accumulate});
    multiply(ops, stream, product(s, v[0], v[2], v[3], workspace));
  };
  c.reference = [s](std::vector<Values>& v) {
    reference_product(s, v[0], v[2], v[3]);
    reference::sum_rows(v[1].data(), v[2].data(), s.k, s.m);
  };
  return c;
}

}  // namespace trident::conformance
