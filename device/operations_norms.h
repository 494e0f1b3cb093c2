// Norms as values, among the operations within layers (device/operations_layers.h says how these are written).
#pragma once

#include <cstdint>

#include "device/op_values.h"
#include "device/operand_checks.h"
#include "device/operation.h"

namespace trident::op {

// Rows x T[rows,H] still lack these: x += bias T[H] + residual T[rows,H], rounded once. Without a bias its view is one of nothing;
// so are both where nothing lacks.
struct Summands {
  ConstTensorView bias = {}, residual = {};

  bool any() const { return residual.shape().rank() > 0; }
  const void* bias_data() const { return bias.data(); }
};

// Rows that are normed, as far as all norms have the same operands. With summands x is `sum`, which is completed in place first.
struct NormedRows {
  TensorView y, rstd;
  ConstTensorView x, weight;
  float eps;
  TensorView sum = {};
  Summands summands = {};

  RowExtent extent() const { return row_extent(x); }
  void fields(FieldVisitor f) const {
    f(writes("y", y, like(x)));
    f(writes("rstd", rstd, {DType::kF32, extent().rows}));
    if (summands.any()) {
      f(updates("x", sum, like(x)));
      f(reads("residual", summands.residual, like(x)));
      if (summands.bias_data() != nullptr) f(reads("summed bias", summands.bias, {x.dtype(), extent().width}));
    } else {
      f(reads("x", x));
    }
    f(reads("weight", weight, {x.dtype(), extent().width}));
  }
};
// The same of their gradients.
struct NormGradients {
  TensorView d_x, d_weight;
  ConstTensorView d_y, x, weight, rstd;
  Accumulate accumulate_x, accumulate_weight;

  RowExtent extent() const { return row_extent(x); }
  void fields(FieldVisitor f) const {
    f(results_in("d_x", d_x, like(x), accumulate_x));
    f(results_in("d_weight", d_weight, {DType::kF32, extent().width}, accumulate_weight));
    f(reads("d_y", d_y, like(x)));
    f(reads("x", x));
    f(reads("weight", weight, {x.dtype(), extent().width}));
    f(reads("rstd", rstd, {DType::kF32, extent().rows}));
  }
};

// y = round_T(x * rstd) * weight, rstd f32[rows] = 1/sqrt(mean(x^2) + eps).
struct RmsNormForward : NormedRows {
  static constexpr OperationName kName{"rms_norm_forward", WorkKind::kRows};

  void launch(const auto& k) const {
    const RowExtent e = extent();
    if (summands.any())
      return k.residual_rms_norm(row_type(x.dtype()), y.data(), rstd.as<float>(), sum.data(), summands.bias_data(),
                                 summands.residual.data(), weight.data(), e.rows, e.width, eps);
    k.rms_norm_forward(row_type(x.dtype()), y.data(), rstd.as<float>(), x.data(), weight.data(), e.rows, e.width, eps);
  }
};

// d_x (+)= per `accumulate_x`; d_weight f32[H] (+)= per `accumulate_weight`. d_x may alias d_y.
struct RmsNormBackward : NormGradients {
  static constexpr OperationName kName{"rms_norm_backward", WorkKind::kRows};

  void launch(const auto& k) const {
    const RowExtent e = extent();
    k.rms_norm_backward(row_type(x.dtype()), d_x.data(), d_weight.as<float>(), d_y.data(), x.data(), weight.data(),
                        rstd.as<float>(), e.rows, e.width, accumulate_x, accumulate_weight);
  }
};

// The same norm where x T[rows, H] is a part of rows `total` wide: the caller forms the sums of its part, adds up those of all
// parts, and applies them. The weight counts before the one rounding (OLMo 2), which rms_norm_forward does after it.
//
// squares f32[rows] = sum x^2.
struct RmsNormSquares {
  static constexpr OperationName kName{"rms_norm_squares", WorkKind::kRows};
  TensorView squares;
  ConstTensorView x;

  void fields(FieldVisitor f) const {
    f(writes("squares", squares, {DType::kF32, row_extent(x).rows}));
    f(reads("x", x));
  }
  void launch(const auto& k) const {
    const RowExtent e = row_extent(x);
    k.rms_norm_squares(row_type(x.dtype()), squares.as<float>(), x.data(), e.rows, e.width);
  }
};

// y = round_T(x * rstd * weight), rstd f32[rows] = 1/sqrt(squares / total + eps); squares are those of all parts.
struct RmsNormApply : NormedRows {
  static constexpr OperationName kName{"rms_norm_apply", WorkKind::kRows};
  ConstTensorView squares;
  std::int64_t total;

  void fields(FieldVisitor f) const {
    NormedRows::fields(f);
    f(reads("squares", squares, {DType::kF32, extent().rows}));
  }
  void launch(const auto& k) const {
    const RowExtent e = extent();
    k.rms_norm_apply(row_type(x.dtype()), y.data(), rstd.as<float>(), x.data(), weight.data(), squares.as<float>(), e.rows,
                     e.width, total, eps);
  }
};

// dots f32[rows] = sum d_y * weight * x.
struct RmsNormDots {
  static constexpr OperationName kName{"rms_norm_dots", WorkKind::kRows};
  TensorView dots;
  ConstTensorView d_y, x, weight;

  void fields(FieldVisitor f) const {
    const RowExtent e = row_extent(x);
    f(writes("dots", dots, {DType::kF32, e.rows}));
    f(reads("d_y", d_y, like(x)));
    f(reads("x", x));
    f(reads("weight", weight, {x.dtype(), e.width}));
  }
  void launch(const auto& k) const {
    const RowExtent e = row_extent(x);
    k.rms_norm_dots(row_type(x.dtype()), dots.as<float>(), d_y.data(), x.data(), weight.data(), e.rows, e.width);
  }
};

// As rms_norm_backward; dots are those of all parts. d_x may alias d_y.
struct RmsNormApplyBackward : NormGradients {
  static constexpr OperationName kName{"rms_norm_apply_backward", WorkKind::kRows};
  ConstTensorView dots;
  std::int64_t total;

  void fields(FieldVisitor f) const {
    NormGradients::fields(f);
    f(reads("dots", dots, {DType::kF32, extent().rows}));
  }
  void launch(const auto& k) const {
    const RowExtent e = extent();
    k.rms_norm_apply_backward(row_type(x.dtype()), d_x.data(), d_weight.as<float>(), d_y.data(), x.data(), weight.data(),
                              rstd.as<float>(), dots.as<float>(), e.rows, e.width, total, accumulate_x, accumulate_weight);
  }
};

// y = (x - mean) * rstd * weight + bias; mean, rstd f32[rows].
struct LayerNormForward : NormedRows {
  static constexpr OperationName kName{"layer_norm_forward", WorkKind::kRows};
  TensorView mean;
  ConstTensorView bias;

  void fields(FieldVisitor f) const {
    NormedRows::fields(f);
    f(writes("mean", mean, {DType::kF32, extent().rows}));
    f(reads("bias", bias, {x.dtype(), extent().width}));
  }
  void launch(const auto& k) const {
    const RowExtent e = extent();
    if (summands.any())
      return k.residual_layer_norm(row_type(x.dtype()), y.data(), mean.as<float>(), rstd.as<float>(), sum.data(),
                                   summands.bias_data(), summands.residual.data(), weight.data(), bias.data(), e.rows, e.width,
                                   eps);
    k.layer_norm_forward(row_type(x.dtype()), y.data(), mean.as<float>(), rstd.as<float>(), x.data(), weight.data(), bias.data(),
                         e.rows, e.width, eps);
  }
};

struct LayerNormBackward : NormGradients {
  static constexpr OperationName kName{"layer_norm_backward", WorkKind::kRows};
  TensorView d_bias;
  ConstTensorView mean;

  void fields(FieldVisitor f) const {
    NormGradients::fields(f);
    f(results_in("d_bias", d_bias, {DType::kF32, extent().width}, accumulate_weight));
    f(reads("mean", mean, {DType::kF32, extent().rows}));
  }
  void launch(const auto& k) const {
    const RowExtent e = extent();
    k.layer_norm_backward(row_type(x.dtype()), d_x.data(), d_weight.as<float>(), d_bias.as<float>(), d_y.data(), x.data(),
                          weight.data(), mean.as<float>(), rstd.as<float>(), e.rows, e.width, accumulate_x, accumulate_weight);
  }
};

}  // namespace trident::op
