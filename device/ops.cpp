#include "device/ops.h"

#include "core/check.h"
#include "device/operations.h"

namespace trident {
namespace {

// Later calls would see the old values too.
void expect_overwrites(std::string_view operation, const MatmulOperands& p) {
  TRIDENT_CHECK(p.accumulate == Accumulate::kNo, "{}: it overwrites", operation);
}

}  // namespace

void Ops::matmul_bias(Stream& stream, const MatmulOperands& product, ConstTensorView bias) {
  expect_overwrites("matmul_bias", product);
  if (try_fused(stream, {.epilogue = Epilogue::kBias, .product = product, .bias = bias, .pre = {}, .result = {}})) return;
  run(stream, op::Matmul{product});
  run(stream, op::AddBias{product.out, bias});
}

void Ops::matmul_bias_gelu(Stream& stream, const MatmulOperands& product, ConstTensorView bias, TensorView activation) {
  expect_overwrites("matmul_bias_gelu", product);
  if (try_fused(stream, {.epilogue = Epilogue::kBiasGelu, .product = product, .bias = bias, .pre = {}, .result = activation})) return;
  run(stream, op::Matmul{product});
  run(stream, op::BiasGelu{.out = activation, .x = product.out, .bias = bias});
}

void Ops::matmul_gelu_backward(Stream& stream, const MatmulOperands& product, ConstTensorView pre, TensorView d_pre) {
  expect_overwrites("matmul_gelu_backward", product);
  if (try_fused(stream, {.epilogue = Epilogue::kGeluBackward, .product = product, .bias = {}, .pre = pre, .result = d_pre}))
    return run(stream, op::GeluForward{.out = product.out, .x = pre});
  run(stream, op::Matmul{product});
  run(stream, op::GeluBackward{.d_x = d_pre, .d_out = product.out, .x = pre});
}

void Ops::matmul_bias_gradient(Stream& stream, const MatmulOperands& product, TensorView d_bias) {
  TRIDENT_CHECK(product.transpose_a == Transpose::kYes, "matmul_bias_gradient: a is the transposed gradient of a linear layer's output");
  if (try_fused(stream, {.epilogue = Epilogue::kBiasGradient, .product = product, .bias = {}, .pre = {}, .result = d_bias})) return;
  run(stream, op::SumRows{.out = d_bias, .x = product.a, .accumulate = product.accumulate});
  run(stream, op::Matmul{product});
}

}  // namespace trident
