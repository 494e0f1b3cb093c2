// Every operation of Ops as a value: those around layers (embedding, loss, copies, sums, updates), those within
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
  template <class Kernels>
  void launch(const Kernels& k) const {
    const RowExtent t = row_extent(table);
    k.embedding_forward(row_type(out.dtype()), out.data(), tokens.as<std::int32_t>(), table.data(), tokens.num_elements(), t.width,
                        first_row, t.rows);
  }
};

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
  template <class Kernels>
  void launch(const Kernels& k) const {
    const RowExtent t = row_extent(d_table);
    k.embedding_backward(row_type(d_out.dtype()), d_table.as<float>(), d_out.data(), tokens.as<std::int32_t>(),
                         tokens.num_elements(), t.width, first_row, t.rows);
  }
};

// ---- vocabulary-parallel cross-entropy

struct CrossEntropyMax {
  static constexpr OperationName kName{"cross_entropy_max", WorkKind::kLoss};
  TensorView row_max;
  ConstTensorView logits;
  std::int64_t first_column, vocabulary;

  void fields(FieldVisitor f) const {
    f(reads("logits", logits));
    f(writes("row_max", row_max, {DType::kF32, row_extent(logits).rows}));
  }
  template <class Kernels>
  void launch(const Kernels& k) const {
    const RowExtent e = row_extent(logits);
    k.cross_entropy_max(row_type(logits.dtype()), row_max.as<float>(), logits.data(), e.rows,
                        VocabularyShard{e.width, first_column, vocabulary});
  }
};

struct CrossEntropyStats {
  static constexpr OperationName kName{"cross_entropy_stats", WorkKind::kLoss};
  TensorView sum_exp, target_logit;
  ConstTensorView logits, row_max, targets;
  std::int64_t first_column, vocabulary;

  void fields(FieldVisitor f) const {
    const std::int64_t rows = row_extent(logits).rows;
    f(reads("logits", logits));
    f(writes("sum_exp", sum_exp, {DType::kF32, rows}));
    f(writes("target_logit", target_logit, {DType::kF32, rows}));
    f(reads("row_max", row_max, {DType::kF32, rows}));
    f(reads("targets", targets, {DType::kI32, rows}));
  }
  template <class Kernels>
  void launch(const Kernels& k) const {
    const RowExtent e = row_extent(logits);
    k.cross_entropy_stats(row_type(logits.dtype()), sum_exp.as<float>(), target_logit.as<float>(), logits.data(),
                          row_max.as<float>(), targets.as<std::int32_t>(), e.rows,
                          VocabularyShard{e.width, first_column, vocabulary});
  }
};

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
  template <class Kernels>
  void launch(const Kernels& k) const {
    k.cross_entropy_rescale(sum_exp.as<float>(), target_logit.as<float>(), shard_max.as<float>(), row_max.as<float>(),
                            targets.as<std::int32_t>(), targets.num_elements(), VocabularyShard{columns, first_column, vocabulary});
  }
};

struct CrossEntropyLoss {
  static constexpr OperationName kName{"cross_entropy_loss", WorkKind::kLoss};
  TensorView loss, row_losses;
  ConstTensorView sum_exp, target_logit, targets;

  void fields(FieldVisitor f) const {
    const std::int64_t rows = targets.num_elements();
    f(writes("loss", loss, {DType::kF64, 1}));
    if (row_losses.data() != nullptr) f(writes("row_losses", row_losses, {DType::kF32, rows}));
    f(reads("sum_exp", sum_exp, {DType::kF32, rows}));
    f(reads("target_logit", target_logit, {DType::kF32, rows}));
    f(reads("targets", targets, {DType::kI32, rows}));
  }
  template <class Kernels>
  void launch(const Kernels& k) const {
    k.cross_entropy_loss(loss.as<double>(), row_losses.data() == nullptr ? nullptr : row_losses.as<float>(), sum_exp.as<float>(),
                         target_logit.as<float>(), targets.as<std::int32_t>(), targets.num_elements());
  }
};

struct CrossEntropyBackward {
  static constexpr OperationName kName{"cross_entropy_backward", WorkKind::kLoss};
  TensorView logits;
  ConstTensorView row_max, sum_exp, targets;
  std::int64_t first_column, vocabulary;
  float scale;

  void fields(FieldVisitor f) const {
    const std::int64_t rows = row_extent(logits).rows;
    f(updates("logits", logits));
    f(reads("row_max", row_max, {DType::kF32, rows}));
    f(reads("sum_exp", sum_exp, {DType::kF32, rows}));
    f(reads("targets", targets, {DType::kI32, rows}));
  }
  template <class Kernels>
  void launch(const Kernels& k) const {
    const RowExtent e = row_extent(logits);
    k.cross_entropy_backward(row_type(logits.dtype()), logits.data(), row_max.as<float>(), sum_exp.as<float>(),
                             targets.as<std::int32_t>(), e.rows, VocabularyShard{e.width, first_column, vocabulary}, scale);
  }
};

// ---- elementwise, copies, reductions

struct AddBias {
  static constexpr OperationName kName{"add_bias", WorkKind::kRows};
  TensorView x;
  ConstTensorView bias;

  void fields(FieldVisitor f) const {
    f(updates("x", x));
    f(reads("bias", bias, {x.dtype(), row_extent(x).width}));
  }
  template <class Kernels>
  void launch(const Kernels& k) const {
    const RowExtent e = row_extent(x);
    k.add_bias(row_type(x.dtype()), x.data(), bias.data(), e.rows, e.width);
  }
};

struct SumRows {
  static constexpr OperationName kName{"sum_rows", WorkKind::kRows};
  TensorView out;
  ConstTensorView x;
  Accumulate accumulate;

  void fields(FieldVisitor f) const {
    f(reads("x", x));
    f(results_in("out", out, {DType::kF32, row_extent(x).width}, accumulate));
  }
  template <class Kernels>
  void launch(const Kernels& k) const {
    const RowExtent e = row_extent(x);
    k.sum_rows(row_type(x.dtype()), out.as<float>(), x.data(), e.rows, e.width, accumulate);
  }
};

struct Add {
  static constexpr OperationName kName{"add", WorkKind::kRows};
  TensorView out;
  ConstTensorView a, b;

  void fields(FieldVisitor f) const {
    f(reads("a", a));
    f(reads("b", b, like(a)));
    f(writes("out", out, like(a)));
  }
  template <class Kernels>
  void launch(const Kernels& k) const {
    k.add(row_type(a.dtype()), out.data(), a.data(), b.data(), a.num_elements());
  }
};

struct AccumulateInto {
  static constexpr OperationName kName{"accumulate", WorkKind::kCopies};
  TensorView out;
  ConstTensorView x;

  void fields(FieldVisitor f) const {
    f(reads("x", x, {DType::kF32, x.num_elements()}));
    f(updates("out", out, like(x)));
  }
  template <class Kernels>
  void launch(const Kernels& k) const {
    k.accumulate(out.as<float>(), x.as<float>(), x.num_elements());
  }
};

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
  template <class Kernels>
  void launch(const Kernels& k) const {
    const Shape& s = x.shape();
    k.dropout(row_type(x.dtype()), out.data(), x.data(), samples.as<std::int64_t>(), s[0], s[1], s[2], spec);
  }
};

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
  template <class Kernels>
  void launch(const Kernels& k) const {
    k.convert(row_type(out.dtype()), out.data(), row_type(x.dtype()), x.data(), x.num_elements());
  }
};

struct FillZero {
  static constexpr OperationName kName{"fill_zero", WorkKind::kCopies};
  TensorView out;

  void fields(FieldVisitor f) const { f(writes("out", out)); }
  template <class Kernels>
  void launch(const Kernels& k) const {
    k.fill_zero(out.data(), out.num_bytes());
  }
};

struct SumSquares {
  static constexpr OperationName kName{"sum_squares", WorkKind::kOptimizer};
  static constexpr std::int64_t kBlock = 64;
  TensorView out;
  ConstTensorView x;

  void fields(FieldVisitor f) const {
    f(reads("x", x, {DType::kF32, x.num_elements()}));
    f(writes("out", out, {DType::kF64, ceil_div(x.num_elements(), kBlock)}));
  }
  template <class Kernels>
  void launch(const Kernels& k) const {
    k.sum_squares(out.as<double>(), x.as<float>(), x.num_elements());
  }
};

struct AddExact {
  static constexpr OperationName kName{"add_exact", WorkKind::kOptimizer};
  TensorView limbs;
  ConstTensorView x;

  void fields(FieldVisitor f) const {
    f(updates("limbs", limbs, {DType::kI64, ExactSum::kLimbs}));
    f(reads("x", x, {DType::kF64, x.num_elements()}));
  }
  template <class Kernels>
  void launch(const Kernels& k) const {
    k.add_exact(limbs.as<std::int64_t>(), x.as<double>(), x.num_elements());
  }
};

// ---- optimizer

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
  template <class Kernels>
  void launch(const Kernels& k) const {
    UpdateStates pointers;
    for (std::size_t i = 0; i < states.size(); ++i) pointers.of[i] = states[i].as<float>();
    k.update(rule, row_type(param.dtype()), param.data(), master.as<float>(), pointers, grad.as<float>(), master.num_elements(),
             numbers, at_random);
  }
};

using OtherOperations =
    OperationList<EmbeddingForward, EmbeddingBackward, CrossEntropyMax, CrossEntropyStats, CrossEntropyRescale,
                  CrossEntropyLoss, CrossEntropyBackward, AddBias, SumRows, Add, AccumulateInto, Dropout, Convert, FillZero,
                  SumSquares, AddExact, Update>;

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
using OperationRef = decltype(joined(op::LayerOperations{}, op::OtherOperations{}))::Ref;

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
