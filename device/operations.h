// Every operation as a value, with its contract: those around layers (embedding, loss, copies, sums, updates), those within
// (device/operations_layers.h, which says how they are written), and OperationRef, any of those in the two lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "core/exact_sum.h"
#include "core/int_math.h"
#include "device/op_values.h"
#include "device/operand_checks.h"
#include "device/operation.h"
#include "device/operations_layers.h"
#include "device/stream.h"

namespace trident::op {

// ---- embedding

// out T[R,H] = table[token - first_row], rows whose token lies outside [first_row, first_row + table rows) are zero.
// tokens i32[R]; table T[rows,H].
struct EmbeddingForward {
  static constexpr OperationName kName{"embedding_forward", WorkKind::kEmbedding};
  TensorView out;
  ConstTensorView tokens, table;
  std::int64_t first_row;

  void fields(FieldVisitor f) const {
    f(reads("table", table).moving(out.num_bytes()));
    f(reads("tokens", tokens, {DType::kI32, tokens.num_elements()}));
    f(writes("out", out, {table.dtype(), tokens.num_elements() * row_extent(table).width}));
  }
  void launch(const auto& k) const {
    const RowExtent t = row_extent(table);
    k.embedding_forward(row_type(out.dtype()), out.data(), tokens.as<std::int32_t>(), table.data(), tokens.num_elements(), t.width,
                        first_row, t.rows);
  }
};

// Adds d_out rows to d_table f32[rows,H], in token order; tokens outside the range are skipped.
struct EmbeddingBackward {
  static constexpr OperationName kName{"embedding_backward", WorkKind::kEmbedding};
  TensorView d_table;
  ConstTensorView d_out, tokens;
  std::int64_t first_row;

  void fields(FieldVisitor f) const {
    f(reads("tokens", tokens, {DType::kI32, tokens.num_elements()}));
    f(updates("d_table", d_table, {DType::kF32, d_table.num_elements()}).moving(2 * d_out.num_bytes()));
    f(reads("d_out", d_out, {d_out.dtype(), tokens.num_elements() * row_extent(d_table).width}));
  }
  void launch(const auto& k) const {
    const RowExtent t = row_extent(d_table);
    k.embedding_backward(row_type(d_out.dtype()), d_table.as<float>(), d_out.data(), tokens.as<std::int32_t>(),
                         tokens.num_elements(), t.width, first_row, t.rows);
  }
};

// ---- vocabulary-parallel cross-entropy

inline const float* row_weights(ConstTensorView weights) { return weights.data() == nullptr ? nullptr : weights.as<float>(); }

// Columns c of logits T[R,V] with first_column + c >= vocabulary are padding: ignored, as if -infinity. Over 0, `softcap` bounds
// logits in all of these operations: softcap * tanh(logit / softcap) takes the place of a logit that is read.
//
// Reads the columns held here once: row_max f32[R] = largest valid logit (-infinity when there is none), sum_exp f32[R] =
// sum exp(logit - row_max) (then 0), target_logit f32[R] = logit of the target minus row_max if this shard holds it, else 0. The
// first of equal logits is the arg max: where an earlier one here is as large, target_logit is -FLT_MIN in the place of 0.
// targets i32[R]; a negative target is not counted (contributes 0).
struct CrossEntropyStats {
  static constexpr OperationName kName{"cross_entropy_stats", WorkKind::kLoss};
  TensorView row_max, sum_exp, target_logit;
  ConstTensorView logits, targets;
  std::int64_t first_column, vocabulary;
  float softcap = 0.0f;

  void fields(FieldVisitor f) const {
    const std::int64_t rows = row_extent(logits).rows;
    f(reads("logits", logits));
    f(writes("row_max", row_max, {DType::kF32, rows}));
    f(writes("sum_exp", sum_exp, {DType::kF32, rows}));
    f(writes("target_logit", target_logit, {DType::kF32, rows}));
    f(reads("targets", targets, {DType::kI32, rows}));
  }
  void launch(const auto& k) const {
    const RowExtent e = row_extent(logits);
    k.cross_entropy_stats(row_type(logits.dtype()), row_max.as<float>(), sum_exp.as<float>(), target_logit.as<float>(),
                          logits.data(), targets.as<std::int32_t>(), e.rows,
                          VocabularyShard{e.width, first_column, vocabulary, softcap});
  }
};

// In place: statistics formed with shard_max f32[R], the maximum of this shard's `columns` columns alone, become those of
// row_max: sum_exp *= exp(shard_max - row_max), target_logit += shard_max - row_max where this shard holds the target, and -=
// FLT_MIN where a later one does and the largest logit is here. Summed over shards it is 0 for the arg max alone.
struct CrossEntropyRescale {
  static constexpr OperationName kName{"cross_entropy_rescale", WorkKind::kLoss};
  TensorView sum_exp, target_logit;
  ConstTensorView shard_max, row_max, targets;
  std::int64_t columns, first_column, vocabulary;

  void fields(FieldVisitor f) const {
    const std::int64_t rows = targets.num_elements();
    f(updates("sum_exp", sum_exp, {DType::kF32, rows}));
    f(updates("target_logit", target_logit, {DType::kF32, rows}));
    f(reads("shard_max", shard_max, {DType::kF32, rows}));
    f(reads("row_max", row_max, {DType::kF32, rows}));
    f(reads("targets", targets, {DType::kI32, rows}));
  }
  void launch(const auto& k) const {
    k.cross_entropy_rescale(sum_exp.as<float>(), target_logit.as<float>(), shard_max.as<float>(), row_max.as<float>(),
                            targets.as<std::int32_t>(), targets.num_elements(), VocabularyShard{columns, first_column, vocabulary});
  }
};

// loss f64[1] = sum over rows with target >= 0 of weight * (log(sum_exp) - target_logit) (both summed over shards), added in row
// order in f64. weights f32[R], or a view of nothing: 1. row_losses f32[R] = the terms without their weights, rounded, and 0 for
// other rows; or a view of nothing.
struct CrossEntropyLoss {
  static constexpr OperationName kName{"cross_entropy_loss", WorkKind::kLoss};
  TensorView loss, row_losses;
  ConstTensorView sum_exp, target_logit, targets, weights = {};

  void fields(FieldVisitor f) const {
    const std::int64_t rows = targets.num_elements();
    f(writes("loss", loss, {DType::kF64, 1}));
    if (row_losses.data() != nullptr) f(writes("row_losses", row_losses, {DType::kF32, rows}));
    f(reads("sum_exp", sum_exp, {DType::kF32, rows}));
    f(reads("target_logit", target_logit, {DType::kF32, rows}));
    f(reads("targets", targets, {DType::kI32, rows}));
    if (weights.data() != nullptr) f(reads("weights", weights, {DType::kF32, rows}));
  }
  void launch(const auto& k) const {
    k.cross_entropy_loss(loss.as<double>(), row_losses.data() == nullptr ? nullptr : row_losses.as<float>(), sum_exp.as<float>(),
                         target_logit.as<float>(), targets.as<std::int32_t>(), targets.num_elements(),
                         row_weights(weights));
  }
};

// In place: logits become d_logits = (exp(logit - row_max)/sum_exp - onehot(target)) * (scale * weight), times the bound's slope;
// rows with a negative target and padding columns become 0. sum_exp summed over shards. weights f32[R] as CrossEntropyLoss's.
struct CrossEntropyBackward {
  static constexpr OperationName kName{"cross_entropy_backward", WorkKind::kLoss};
  TensorView logits;
  ConstTensorView row_max, sum_exp, targets;
  std::int64_t first_column, vocabulary;
  float scale;
  float softcap = 0.0f;
  ConstTensorView weights = {};

  void fields(FieldVisitor f) const {
    const std::int64_t rows = row_extent(logits).rows;
    f(updates("logits", logits));
    f(reads("row_max", row_max, {DType::kF32, rows}));
    f(reads("sum_exp", sum_exp, {DType::kF32, rows}));
    f(reads("targets", targets, {DType::kI32, rows}));
    if (weights.data() != nullptr) f(reads("weights", weights, {DType::kF32, rows}));
  }
  void launch(const auto& k) const {
    const RowExtent e = row_extent(logits);
    k.cross_entropy_backward(row_type(logits.dtype()), logits.data(), row_max.as<float>(), sum_exp.as<float>(),
                             targets.as<std::int32_t>(), e.rows,
                             VocabularyShard{e.width, first_column, vocabulary, softcap}, scale, row_weights(weights));
  }
};

// Where one rank holds the whole vocabulary, in one reading and one writing: sum_exp and target_logit as CrossEntropyStats writes
// them, and in place logits become what CrossEntropyBackward makes of them. It has that operation's traffic, hence its name.
struct CrossEntropyGradient {
  static constexpr OperationName kName = CrossEntropyBackward::kName;
  TensorView sum_exp, target_logit, logits;
  ConstTensorView targets;
  std::int64_t vocabulary;
  float scale;
  float softcap = 0.0f;
  ConstTensorView weights = {};

  void check() const {
    TRIDENT_CHECK(vocabulary <= row_extent(logits).width, "{}: {} columns of a vocabulary of {}", kName.name,
                  row_extent(logits).width, vocabulary);
  }
  void fields(FieldVisitor f) const {
    const std::int64_t rows = row_extent(logits).rows;
    f(updates("logits", logits));
    f(writes("sum_exp", sum_exp, {DType::kF32, rows}));
    f(writes("target_logit", target_logit, {DType::kF32, rows}));
    f(reads("targets", targets, {DType::kI32, rows}));
    if (weights.data() != nullptr) f(reads("weights", weights, {DType::kF32, rows}));
  }
  void launch(const auto& k) const {
    const RowExtent e = row_extent(logits);
    k.cross_entropy_gradient(row_type(logits.dtype()), logits.data(), sum_exp.as<float>(), target_logit.as<float>(),
                             targets.as<std::int32_t>(), e.rows, VocabularyShard{e.width, 0, vocabulary, softcap}, scale,
                             row_weights(weights));
  }
};

// ---- elementwise, copies, reductions

// In place: x T[R,C] += bias T[C] in every row; with a residual T[R,C] also += that, rounded once.
struct AddBias {
  static constexpr OperationName kName{"add_bias", WorkKind::kRows};
  TensorView x;
  ConstTensorView bias, residual = {};

  void fields(FieldVisitor f) const {
    f(updates("x", x));
    f(reads("bias", bias, {x.dtype(), row_extent(x).width}));
    if (residual.data() != nullptr) f(reads("residual", residual, like(x)));
  }
  void launch(const auto& k) const {
    const RowExtent e = row_extent(x);
    if (residual.data() != nullptr)
      return k.add_bias_residual(row_type(x.dtype()), x.data(), bias.data(), residual.data(), e.rows, e.width);
    k.add_bias(row_type(x.dtype()), x.data(), bias.data(), e.rows, e.width);
  }
};

// out f32[C] (+)= column sums of x T[R,C], or of its elements times those of `times` T[R,C].
struct SumRows {
  static constexpr OperationName kName{"sum_rows", WorkKind::kRows};
  TensorView out;
  ConstTensorView x;
  Accumulate accumulate;
  ConstTensorView times = {};

  void fields(FieldVisitor f) const {
    f(reads("x", x));
    if (times.data() != nullptr) f(reads("times", times, like(x)));
    f(results_in("out", out, {DType::kF32, row_extent(x).width}, accumulate));
  }
  void launch(const auto& k) const {
    const RowExtent e = row_extent(x);
    k.sum_rows(row_type(x.dtype()), out.as<float>(), x.data(), times.data(), e.rows, e.width, accumulate);
  }
};

// out T[R,C] (+)= x T[R,C] times factor f32[C] + shift in every row, rounded once. out may alias x.
struct ScaleColumns {
  static constexpr OperationName kName{"scale_columns", WorkKind::kRows};
  TensorView out;
  ConstTensorView x, factor;
  float shift = 0.0f;
  Accumulate accumulate = Accumulate::kNo;

  void fields(FieldVisitor f) const {
    f(results_in("out", out, like(x), accumulate));
    f(reads("x", x));
    f(reads("factor", factor, {DType::kF32, row_extent(x).width}));
  }
  void launch(const auto& k) const {
    const RowExtent e = row_extent(x);
    k.scale_columns(row_type(x.dtype()), out.data(), x.data(), factor.as<float>(), shift, e.rows, e.width, accumulate);
  }
};

// out = a + b, any shape, T; out may alias a or b.
struct Add {
  static constexpr OperationName kName{"add", WorkKind::kRows};
  TensorView out;
  ConstTensorView a, b;

  void fields(FieldVisitor f) const {
    f(reads("a", a));
    f(reads("b", b, like(a)));
    f(writes("out", out, like(a)));
  }
  void launch(const auto& k) const {
    k.add(row_type(a.dtype()), out.data(), a.data(), b.data(), a.num_elements());
  }
};

// out f32 += x f32 (gradient accumulation).
struct AccumulateInto {
  static constexpr OperationName kName{"accumulate", WorkKind::kCopies};
  TensorView out;
  ConstTensorView x;

  void fields(FieldVisitor f) const {
    f(reads("x", x, {DType::kF32, x.num_elements()}));
    f(updates("out", out, like(x)));
  }
  void launch(const auto& k) const {
    k.accumulate(out.as<float>(), x.as<float>(), x.num_elements());
  }
};

// out[s,b,:] = x[s,b,:] * mask/(1-p), [S,B,H]; the same call on the gradient is its backward. out may alias x.
struct Dropout {
  static constexpr OperationName kName{"dropout", WorkKind::kRows};
  TensorView out;
  ConstTensorView x, samples;  // samples i64 [B]: global indices
  const DropoutSpec& spec;

  void check() const { TRIDENT_CHECK(x.shape().rank() == 3, "dropout: x is {}, expected [S, B, H]", to_string(x.shape())); }
  void fields(FieldVisitor f) const {
    f(writes("out", out, like(x)));
    f(reads("x", x));
    f(reads("samples", samples, {DType::kI64, x.shape()[1]}));
  }
  void launch(const auto& k) const {
    const Shape& s = x.shape();
    k.dropout(row_type(x.dtype()), out.data(), x.data(), samples.as<std::int64_t>(), s[0], s[1], s[2], spec);
  }
};

// out = x converted (f32 <-> bf16, f32 <-> f16), or copied when the dtypes agree; the two do not overlap.
struct Convert {
  static constexpr OperationName kName{"convert", WorkKind::kCopies};
  TensorView out;
  ConstTensorView x;

  void check() const {
    TRIDENT_CHECK(out.dtype() == x.dtype() || out.dtype() == DType::kF32 || x.dtype() == DType::kF32, "convert: {} to {}",
                  to_string(x.dtype()), to_string(out.dtype()));
  }
  void fields(FieldVisitor f) const {
    f(reads("x", x, {x.dtype(), out.num_elements()}));
    f(writes("out", out));
  }
  void launch(const auto& k) const {
    k.convert(row_type(out.dtype()), out.data(), row_type(x.dtype()), x.data(), x.num_elements());
  }
};

struct FillZero {
  static constexpr OperationName kName{"fill_zero", WorkKind::kCopies};
  TensorView out;

  void fields(FieldVisitor f) const { f(writes("out", out)); }
  void launch(const auto& k) const {
    k.fill_zero(out.data(), out.num_bytes());
  }
};

// out f64[ceil(n/64)] = sums of squares of consecutive blocks of 64 elements of x f32[n] (the last may be short): the blocks of
// the layout-independent gradient norm. Non-finite elements give a non-finite block.
struct SumSquares {
  static constexpr OperationName kName{"sum_squares", WorkKind::kOptimizer};
  static constexpr std::int64_t kBlock = 64;
  TensorView out;
  ConstTensorView x;

  void fields(FieldVisitor f) const {
    f(reads("x", x, {DType::kF32, x.num_elements()}));
    f(writes("out", out, {DType::kF64, ceil_div(x.num_elements(), kBlock)}));
  }
  void launch(const auto& k) const {
    k.sum_squares(out.as<double>(), x.as<float>(), x.num_elements());
  }
};

// limbs i64[ExactSum::kLimbs] (core/exact_sum.h) += x f64[n], without rounding. Digits may be left un-normalised, as
// ExactSum::add leaves them; limbs that began normalised bear 2^30 elements before they must be normalised.
struct AddExact {
  static constexpr OperationName kName{"add_exact", WorkKind::kOptimizer};
  TensorView limbs;
  ConstTensorView x;

  void fields(FieldVisitor f) const {
    f(updates("limbs", limbs, {DType::kI64, ExactSum::kLimbs}));
    f(reads("x", x, {DType::kF64, x.num_elements()}));
  }
  void launch(const auto& k) const {
    k.add_exact(limbs.as<std::int64_t>(), x.as<double>(), x.num_elements());
  }
};

// ---- optimizer

// master, states f32[n] updated in place; param T[n] = round(master), as at_random says; grad f32[n]. param may alias master when
// T is f32.
struct Update {
  UpdateRule rule;
  TensorView param, master;
  std::span<const TensorView> states;  // num_states(rule)
  ConstTensorView grad;
  const UpdateNumbers& numbers;
  const RoundedElements* at_random;  // of param, which is bf16; nullptr: to nearest

  OperationName name() const;
  void check() const;
  void fields(FieldVisitor f) const {
    constexpr std::string_view kStateNames[] = {"m", "v"};
    const Elements values{DType::kF32, master.num_elements()};
    f(writes("param", param, {param.dtype(), values.count}));
    f(updates("master", master, values));
    for (std::size_t i = 0; i < states.size(); ++i) f(updates(kStateNames[i], states[i], values));
    f(reads("grad", grad, values));
  }
  void launch(const auto& k) const {
    UpdateStates pointers;
    for (std::size_t i = 0; i < states.size(); ++i) pointers.of[i] = states[i].as<float>();
    k.update(rule, row_type(param.dtype()), param.data(), master.as<float>(), pointers, grad.as<float>(), master.num_elements(),
             numbers, at_random);
  }
};

using OtherOperations =
    OperationList<EmbeddingForward, EmbeddingBackward, CrossEntropyStats, CrossEntropyRescale, CrossEntropyLoss,
                  CrossEntropyBackward, CrossEntropyGradient, AddBias, SumRows, ScaleColumns, Add, AccumulateInto, Dropout, Convert,
                  FillZero, SumSquares, AddExact, Update>;

template <class Operation>
OperationName name_of(const Operation& operation) {
  if constexpr (requires { operation.name(); })
    return operation.name();
  else
    return Operation::kName;
}

}  // namespace trident::op

namespace trident {

// One of them, which lives while the call does.
using AnyOperation = decltype(joined(op::LayerOperations{}, op::OtherOperations{}))::Ref;
class OperationRef : public AnyOperation {
 public:
  template <class Operation>
  OperationRef(const Operation& operation) : AnyOperation(&operation) {}
};

// Checks what was called, then has `backend` do it:
// - Backend::reaches(MemoryKind): whether its operations can work on such memory;
// - backend.execute(stream, operation), for every operation.
template <class Backend>
void check_and_execute(Backend& backend, Stream& stream, OperationRef operation) {
  std::visit(
      [&](const auto* o) {
        if constexpr (requires { o->check(); }) o->check();
        check_fields(
            op::name_of(*o).name, [o](FieldVisitor f) { o->fields(f); }, &Backend::reaches);
        backend.execute(stream, *o);
      },
      operation);
}

}  // namespace trident
