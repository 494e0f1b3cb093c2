// The operations of CpuOps that are row kernels from end to end: norms, activations, elementwise, optimizer.
#include "core/exact_sum.h"
#include "core/int_math.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/operand_checks.h"

namespace trident {

namespace {

void begin(Stream& stream) { stream.synchronize(); }  // as in cpu_ops.cpp

}  // namespace

// ---- norms

void CpuOps::rms_norm_forward(Stream& stream, TensorView y, TensorView rstd, ConstTensorView x, ConstTensorView weight, float eps) {
  constexpr std::string_view kName = "rms_norm_forward";
  const RowExtent e = row_extent(x);
  expect_like(kName, "y", y, x);
  expect(kName, "rstd", rstd, DType::kF32, e.rows);
  expect(kName, "weight", weight, x.dtype(), e.width);
  begin(stream);
  kernels_.rms_norm_forward(row_type(x.dtype()), y.data(), rstd.as<float>(), x.data(), weight.data(), e.rows, e.width, eps);
}

void CpuOps::rms_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, ConstTensorView d_y, ConstTensorView x,
                               ConstTensorView weight, ConstTensorView rstd, Accumulate accumulate_x,
                               Accumulate accumulate_weight) {
  constexpr std::string_view kName = "rms_norm_backward";
  const RowExtent e = row_extent(x);
  expect_like(kName, "d_x", d_x, x);
  expect_like(kName, "d_y", d_y, x);
  expect(kName, "d_weight", d_weight, DType::kF32, e.width);
  expect(kName, "weight", weight, x.dtype(), e.width);
  expect(kName, "rstd", rstd, DType::kF32, e.rows);
  begin(stream);
  kernels_.rms_norm_backward(row_type(x.dtype()), d_x.data(), d_weight.as<float>(), d_y.data(), x.data(), weight.data(),
                             rstd.as<float>(), e.rows, e.width, accumulate_x, accumulate_weight);
}

void CpuOps::layer_norm_forward(Stream& stream, TensorView y, TensorView mean, TensorView rstd, ConstTensorView x,
                                ConstTensorView weight, ConstTensorView bias, float eps) {
  constexpr std::string_view kName = "layer_norm_forward";
  const RowExtent e = row_extent(x);
  expect_like(kName, "y", y, x);
  expect(kName, "mean", mean, DType::kF32, e.rows);
  expect(kName, "rstd", rstd, DType::kF32, e.rows);
  expect(kName, "weight", weight, x.dtype(), e.width);
  expect(kName, "bias", bias, x.dtype(), e.width);
  begin(stream);
  kernels_.layer_norm_forward(row_type(x.dtype()), y.data(), mean.as<float>(), rstd.as<float>(), x.data(), weight.data(),
                              bias.data(), e.rows, e.width, eps);
}

void CpuOps::layer_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, TensorView d_bias, ConstTensorView d_y,
                                 ConstTensorView x, ConstTensorView weight, ConstTensorView mean, ConstTensorView rstd,
                                 Accumulate accumulate_x, Accumulate accumulate_weight) {
  constexpr std::string_view kName = "layer_norm_backward";
  const RowExtent e = row_extent(x);
  expect_like(kName, "d_x", d_x, x);
  expect_like(kName, "d_y", d_y, x);
  expect(kName, "d_weight", d_weight, DType::kF32, e.width);
  expect(kName, "d_bias", d_bias, DType::kF32, e.width);
  expect(kName, "weight", weight, x.dtype(), e.width);
  expect(kName, "mean", mean, DType::kF32, e.rows);
  expect(kName, "rstd", rstd, DType::kF32, e.rows);
  begin(stream);
  kernels_.layer_norm_backward(row_type(x.dtype()), d_x.data(), d_weight.as<float>(), d_bias.as<float>(), d_y.data(), x.data(),
                               weight.data(), mean.as<float>(), rstd.as<float>(), e.rows, e.width, accumulate_x, accumulate_weight);
}

// ---- activations

void CpuOps::swiglu_forward(Stream& stream, TensorView out, ConstTensorView gate_up) {
  const RowExtent e = row_extent(out);
  expect("swiglu_forward", "gate_up", gate_up, out.dtype(), 2 * e.rows * e.width);
  begin(stream);
  kernels_.swiglu_forward(row_type(out.dtype()), out.data(), gate_up.data(), e.rows, e.width);
}

void CpuOps::swiglu_backward(Stream& stream, TensorView d_gate_up, ConstTensorView d_out, ConstTensorView gate_up) {
  const RowExtent e = row_extent(d_out);
  expect("swiglu_backward", "gate_up", gate_up, d_out.dtype(), 2 * e.rows * e.width);
  expect_like("swiglu_backward", "d_gate_up", d_gate_up, gate_up);
  begin(stream);
  kernels_.swiglu_backward(row_type(d_out.dtype()), d_gate_up.data(), d_out.data(), gate_up.data(), e.rows, e.width);
}

void CpuOps::gelu_forward(Stream& stream, TensorView out, ConstTensorView x) {
  expect_like("gelu_forward", "out", out, x);
  begin(stream);
  kernels_.gelu_forward(row_type(x.dtype()), out.data(), x.data(), x.num_elements());
}

void CpuOps::gelu_backward(Stream& stream, TensorView d_x, ConstTensorView d_out, ConstTensorView x) {
  expect_like("gelu_backward", "d_x", d_x, x);
  expect_like("gelu_backward", "d_out", d_out, x);
  begin(stream);
  kernels_.gelu_backward(row_type(x.dtype()), d_x.data(), d_out.data(), x.data(), x.num_elements());
}

// ---- elementwise, copies, reductions

void CpuOps::add_bias(Stream& stream, TensorView x, ConstTensorView bias) {
  const RowExtent e = row_extent(x);
  expect("add_bias", "bias", bias, x.dtype(), e.width);
  begin(stream);
  kernels_.add_bias(row_type(x.dtype()), x.data(), bias.data(), e.rows, e.width);
}

void CpuOps::sum_rows(Stream& stream, TensorView out, ConstTensorView x, Accumulate accumulate) {
  const RowExtent e = row_extent(x);
  expect("sum_rows", "out", out, DType::kF32, e.width);
  begin(stream);
  kernels_.sum_rows(row_type(x.dtype()), out.as<float>(), x.data(), e.rows, e.width, accumulate);
}

void CpuOps::add(Stream& stream, TensorView out, ConstTensorView a, ConstTensorView b) {
  expect_like("add", "b", b, a);
  expect_like("add", "out", out, a);
  begin(stream);
  kernels_.add(row_type(a.dtype()), out.data(), a.data(), b.data(), a.num_elements());
}

void CpuOps::accumulate(Stream& stream, TensorView out, ConstTensorView x) {
  expect("accumulate", "x", x, DType::kF32, x.num_elements());
  expect_like("accumulate", "out", out, x);
  begin(stream);
  kernels_.accumulate(out.as<float>(), x.as<float>(), x.num_elements());
}

void CpuOps::dropout(Stream& stream, TensorView out, ConstTensorView x, const DropoutSpec& spec) {
  TRIDENT_CHECK(x.shape().rank() == 3, "dropout: x is {}, expected [S, B, H]", to_string(x.shape()));
  const Shape& s = x.shape();
  expect_like("dropout", "out", out, x);
  expect("dropout", "samples", spec.samples, DType::kI64, s[1]);
  begin(stream);
  const DropoutRows rows{
      spec.probability, {spec.key[0], spec.key[1]}, spec.sequence, spec.position_offset, spec.samples.as<std::int64_t>()};
  kernels_.dropout(row_type(x.dtype()), out.data(), x.data(), s[0], s[1], s[2], rows);
}

void CpuOps::convert(Stream& stream, TensorView out, ConstTensorView x) {
  expect("convert", "x", x, x.dtype(), out.num_elements());
  begin(stream);
  kernels_.convert(row_type(out.dtype()), out.data(), row_type(x.dtype()), x.data(), x.num_elements());
}

void CpuOps::fill_zero(Stream& stream, TensorView out) {
  expect("fill_zero", "out", out, out.dtype(), out.num_elements());
  begin(stream);
  kernels_.fill_zero(out.data(), out.num_bytes());
}

void CpuOps::sum_squares(Stream& stream, TensorView out, ConstTensorView x) {
  constexpr std::int64_t kBlock = 64;
  expect("sum_squares", "x", x, DType::kF32, x.num_elements());
  expect("sum_squares", "out", out, DType::kF64, ceil_div(x.num_elements(), kBlock));
  begin(stream);
  kernels_.sum_squares(out.as<double>(), x.as<float>(), x.num_elements());
}

void CpuOps::add_exact(Stream& stream, TensorView limbs, ConstTensorView x) {
  expect("add_exact", "limbs", limbs, DType::kI64, ExactSum::kLimbs);
  expect("add_exact", "x", x, DType::kF64, x.num_elements());
  begin(stream);
  ExactSum sum;
  sum.add(x.span<double>());
  sum.normalise();
  for (std::size_t i = 0; i < ExactSum::kLimbs; ++i) limbs.as<std::int64_t>()[i] += sum.limbs()[i];
}

// ---- optimizer

void CpuOps::adamw(Stream& stream, TensorView param, TensorView master, TensorView m, TensorView v, ConstTensorView grad,
                   const AdamWParams& p) {
  const std::int64_t n = master.num_elements();
  expect("adamw", "param", param, param.dtype(), n);
  expect("adamw", "master", master, DType::kF32, n);
  expect("adamw", "m", m, DType::kF32, n);
  expect("adamw", "v", v, DType::kF32, n);
  expect("adamw", "grad", grad, DType::kF32, n);
  begin(stream);
  const AdamWStep step{p.lr, p.beta1, p.beta2, p.eps, p.weight_decay, p.grad_scale, p.bias_correction1, p.bias_correction2};
  kernels_.adamw(row_type(param.dtype()), param.data(), master.as<float>(), m.as<float>(), v.as<float>(), grad.as<float>(), n,
                 step);
}

}  // namespace trident
