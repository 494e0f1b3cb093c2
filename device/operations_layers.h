// The operations within layers as values: contract, operands, how they are used, and the row kernel that does it.
// device/operations.h has the others, device/ops.h the letters and rules of all.
//
// Checks, metering and backends look at all operations through
// - kName: its name in profiles and messages, and the kind of work;
// - fields(f): calls f with every operand;
// - check(), where operands must fit together in ways that fields() does not say: InternalError;
// - launch(kernels), of what is one row kernel: `kernels` has the functions of RowKernels (device/row_kernels/row_kernels.h) and
//   cross_entropy_rescale, cross_entropy_loss and add_exact besides;
// - flops(), of products and attention.
// Values refer to arguments and live while the call does.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "device/op_values.h"
#include "device/operand_checks.h"
#include "device/operation.h"
#include "device/operations_norms.h"

namespace trident::op {

// ---- products and attention

// out[M,N] (+)= scale op(a) op(b); workspace u8, at least what prepare_matmul() returned for this shape.
struct Matmul {
  static constexpr OperationName kName{"matmul", WorkKind::kMatmuls};
  const MatmulOperands& operands;

  MatmulShape shape() const;  // operands that do not fit together are refused
  void check() const { shape(); }
  void fields(FieldVisitor f) const;
  double flops() const;
};

// A product and what follows it: not among those of OperationRef, because it may be left undone (Ops::try_fused).
struct Fused {
  const FusedMatmul& call;

  OperationName name() const;
  void fields(FieldVisitor f) const;
  double flops() const {
    return Matmul{call.product}.flops() + 2.0 * static_cast<double>(call.product.out.num_elements() * call.rank());
  }
};

void check_attention(std::string_view operation, const AttentionShape& shape);

// Turns pairs (j, j + P) of the first 2P elements of a head, P = table width (half-split form). cos, sin f32[positions, P];
// position i32[B,S] picks the row. Views of nothing: nothing turns.
struct Rotation {
  ConstTensorView cos = {}, sin = {}, position = {};

  bool turns() const { return cos.shape().rank() > 0; }
  std::int64_t pairs() const { return cos.shape()[-1]; }
  void check(std::string_view operation, const Shape& heads) const;
  void fields(FieldVisitor f, const Shape& heads) const {
    f(reads("cos", cos, {DType::kF32, cos.num_elements()}));
    f(reads("sin", sin, {DType::kF32, cos.num_elements()}));
    f(reads("position", position, {DType::kI32, heads[0] * heads[2]}));
  }
};

// out T[B,N,Sq,D]; lse f32[B,N,Sq] (natural log-sum-exp of the scaled scores); q T[B,N,Sq,D]; k, v T[B,K,Sk,D]; first_key i32
// [B,Sq] with shape.interval, else empty. Where Ops::attends_by_rows(), heads T[B,n,S,D] may be rows T[S,B,C], as products make
// them, of which n*D columns are meant: from 0 on of `out`, from `columns` on of the others. Here as in what follows.
// There, too, `rotation` may turn q and k, as many queries as keys, while they are read: rounded to T, as SplitHeads does it.
struct AttentionForward {
  static constexpr OperationName kName{"attention_forward", WorkKind::kAttention};
  const AttentionShape& shape;
  TensorView out, lse;
  ConstTensorView q, k, v;
  TensorView workspace;
  ConstTensorView first_key = {};
  HeadColumns columns = {};
  Rotation rotation = {};

  void check() const;
  void fields(FieldVisitor f) const;
  double flops() const;
};

// Attention over a cache of Sk positions, sample b's queries at positions first[b] + i: out, lse as above, of causal attention
// with query_offset first[b]. first [B] lies in host memory, is read before the call returns, and is from 0 to Sk - 1; queries
// behind the cache's end see all of it. `shape` is causal, with offsets of 0; first_key has positions in the cache.
struct CachedAttention {
  static constexpr OperationName kName{"cached_attention", WorkKind::kAttention};
  const AttentionShape& shape;
  std::span<const std::int64_t> first;  // [B], host memory
  TensorView out, lse;
  ConstTensorView q, k, v;
  TensorView workspace;
  ConstTensorView first_key = {};
  HeadColumns columns = {};

  AttentionShape of_sample(std::int64_t b) const;
  void check() const;
  void fields(FieldVisitor f) const;
  double flops() const;
};

// d_q, d_k, d_v of the shapes of q, k, v, overwritten, and turned back by `rotation`. None aliases what is read.
struct AttentionBackward {
  static constexpr OperationName kName{"attention_backward", WorkKind::kAttention};
  const AttentionShape& shape;
  TensorView d_q, d_k, d_v;
  ConstTensorView d_out, out, q, k, v, lse;
  TensorView workspace;
  ConstTensorView first_key = {};
  HeadColumns columns = {};
  Rotation rotation = {};

  void check() const;
  void fields(FieldVisitor f) const;
  double flops() const;
};

// ---- heads

// heads [B, n, S, D] beside rows [S, B, C] of which columns first_column .. + n*D are meant, and perhaps turned.
void check_heads(std::string_view operation, ConstTensorView heads, ConstTensorView rows, std::int64_t first_column,
                 const Rotation& rotation);

// heads T[B,n,S,D] <- columns first_column .. first_column + n*D of rows T[S,B,C], turned by `rotation`.
struct SplitHeads {
  static constexpr OperationName kName{"split_heads", WorkKind::kHeads};
  TensorView heads;
  ConstTensorView rows;
  std::int64_t first_column;
  Rotation rotation = {};

  void check() const { check_heads(kName.name, heads, rows, first_column, rotation); }
  void fields(FieldVisitor f) const {
    f(writes("heads", heads));
    f(reads("rows", rows).moving(heads.num_bytes()));
    if (rotation.turns()) rotation.fields(f, heads.shape());
  }
  void launch(const auto& k) const {
    const Shape& h = heads.shape();
    if (rotation.turns())
      return k.split_rotated_heads(row_type(heads.dtype()), heads.data(), rows.data(), h[0], h[1], h[2], h[3], rows.shape()[2],
                                   first_column, rotation.cos.as<float>(), rotation.sin.as<float>(),
                                   rotation.position.as<std::int32_t>(), rotation.pairs());
    k.split_heads(row_type(heads.dtype()), heads.data(), rows.data(), h[0], h[1], h[2], h[3], rows.shape()[2], first_column);
  }
};

// The inverse: writes those columns of rows T[S,B,C], turned back by `rotation`, leaves the others.
struct MergeHeads {
  static constexpr OperationName kName{"merge_heads", WorkKind::kHeads};
  TensorView rows;
  ConstTensorView heads;
  std::int64_t first_column;
  Rotation rotation = {};

  void check() const { check_heads(kName.name, heads, rows, first_column, rotation); }
  void fields(FieldVisitor f) const {
    f(writes("rows", rows).moving(heads.num_bytes()));
    f(reads("heads", heads));
    if (rotation.turns()) rotation.fields(f, heads.shape());
  }
  void launch(const auto& k) const {
    const Shape& h = heads.shape();
    if (rotation.turns())
      return k.merge_rotated_heads(row_type(heads.dtype()), rows.data(), heads.data(), h[0], h[1], h[2], h[3], rows.shape()[2],
                                   first_column, rotation.cos.as<float>(), rotation.sin.as<float>(),
                                   rotation.position.as<std::int32_t>(), rotation.pairs());
    k.merge_heads(row_type(heads.dtype()), rows.data(), heads.data(), h[0], h[1], h[2], h[3], rows.shape()[2], first_column);
  }
};

// In place on x T[B,n,S,D]; `inverse` = kYes turns back (the backward pass).
struct Rope {
  static constexpr OperationName kName{"rope", WorkKind::kHeads};
  TensorView x;
  Rotation rotation;
  Transpose inverse;

  void check() const;
  void fields(FieldVisitor f) const {
    f(updates("x", x));
    rotation.fields(f, x.shape());
  }
  void launch(const auto& k) const {
    const Shape& s = x.shape();
    k.rope(row_type(x.dtype()), x.data(), rotation.cos.as<float>(), rotation.sin.as<float>(), rotation.position.as<std::int32_t>(),
           s[0], s[1], s[2], s[3], rotation.pairs(), inverse);
  }
};

// ---- activations

// out T[R,F] = silu(gate) * up, gate_up T[R,2F] = [gate | up].
struct SwigluForward {
  static constexpr OperationName kName{"swiglu_forward", WorkKind::kRows};
  TensorView out;
  ConstTensorView gate_up;

  void fields(FieldVisitor f) const {
    f(writes("out", out));
    f(reads("gate_up", gate_up, {out.dtype(), 2 * out.num_elements()}));
  }
  void launch(const auto& k) const {
    const RowExtent e = row_extent(out);
    k.swiglu_forward(row_type(out.dtype()), out.data(), gate_up.data(), e.rows, e.width);
  }
};

// In place, d_out becomes what forward gave, which the gradient of the next weight is made of.
struct SwigluBackward {
  static constexpr OperationName kName{"swiglu_backward", WorkKind::kRows};
  TensorView d_gate_up, d_out;
  ConstTensorView gate_up;

  void fields(FieldVisitor f) const {
    f(updates("d_out", d_out));
    f(reads("gate_up", gate_up, {d_out.dtype(), 2 * d_out.num_elements()}));
    f(writes("d_gate_up", d_gate_up, like(gate_up)));
  }
  void launch(const auto& k) const {
    const RowExtent e = row_extent(d_out);
    k.swiglu_backward(row_type(d_out.dtype()), d_gate_up.data(), d_out.data(), gate_up.data(), e.rows, e.width);
  }
};

// tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
struct GeluForward {
  static constexpr OperationName kName{"gelu_forward", WorkKind::kRows};
  TensorView out;
  ConstTensorView x;

  void fields(FieldVisitor f) const {
    f(writes("out", out, like(x)));
    f(reads("x", x));
  }
  void launch(const auto& k) const {
    k.gelu_forward(row_type(x.dtype()), out.data(), x.data(), x.num_elements());
  }
};

// In place x T[R,C] += bias T[C] in every row, rounded; out = gelu(x).
struct BiasGelu {
  static constexpr OperationName kName = GeluForward::kName;
  TensorView out, x;
  ConstTensorView bias;

  void fields(FieldVisitor f) const {
    f(writes("out", out, like(x)));
    f(updates("x", x));
    f(reads("bias", bias, {x.dtype(), row_extent(x).width}));
  }
  void launch(const auto& k) const {
    const RowExtent e = row_extent(x);
    k.bias_gelu(row_type(x.dtype()), out.data(), x.data(), bias.data(), e.rows, e.width);
  }
};

// In place, d_out becomes gelu(x), which the gradient of the next weight is made of.
struct GeluBackward {
  static constexpr OperationName kName{"gelu_backward", WorkKind::kRows};
  TensorView d_x, d_out;
  ConstTensorView x;

  void fields(FieldVisitor f) const {
    f(writes("d_x", d_x, like(x)));
    f(updates("d_out", d_out, like(x)));
    f(reads("x", x));
  }
  void launch(const auto& k) const {
    k.gelu_backward(row_type(x.dtype()), d_x.data(), d_out.data(), x.data(), x.num_elements());
  }
};

// The bounds themselves are inside, as in PyTorch's clamp.
// out = x between -limit and limit, limit > 0; out may alias x.
struct ClipForward {
  static constexpr OperationName kName{"clip_forward", WorkKind::kRows};
  TensorView out;
  ConstTensorView x;
  float limit;

  void fields(FieldVisitor f) const {
    f(writes("out", out, like(x)));
    f(reads("x", x));
  }
  void launch(const auto& k) const {
    k.clip_forward(row_type(x.dtype()), out.data(), x.data(), x.num_elements(), limit);
  }
};

// d_x = d_out where x was within the bounds or on them, else 0; d_x may alias d_out.
struct ClipBackward {
  static constexpr OperationName kName{"clip_backward", WorkKind::kRows};
  TensorView d_x;
  ConstTensorView d_out, x;
  float limit;

  void fields(FieldVisitor f) const {
    f(writes("d_x", d_x, like(x)));
    f(reads("d_out", d_out, like(x)));
    f(reads("x", x));
  }
  void launch(const auto& k) const {
    k.clip_backward(row_type(x.dtype()), d_x.data(), d_out.data(), x.data(), x.num_elements(), limit);
  }
};

using LayerOperations =
    OperationList<Matmul, AttentionForward, CachedAttention, AttentionBackward, SplitHeads, MergeHeads, Rope, RmsNormForward,
                  RmsNormBackward, LayerNormForward, LayerNormBackward, SwigluForward, SwigluBackward, GeluForward, BiasGelu,
                  GeluBackward, RmsNormSquares, RmsNormApply, RmsNormDots, RmsNormApplyBackward, ClipForward, ClipBackward>;

}  // namespace trident::op
