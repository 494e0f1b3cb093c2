// What backends share of Ops: the shapes, dtypes and memory of operands are checked, then the backend's row kernels are called.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "device/operand_checks.h"
#include "device/ops.h"

namespace trident {

// A Backend derives from CheckedOps<Backend> and has
// - static bool reaches(MemoryKind): whether its operations can work on such memory;
// - row_kernels(Stream&): something with the functions of RowKernels (device/row_kernels/row_kernels.h), and besides them
//   cross_entropy_rescale(float* sum_exp, float* target_logit, const float* shard_max, const float* row_max,
//                         const int32_t* targets, rows, const VocabularyShard&),
//   cross_entropy_loss(double* loss, const float* sum_exp, const float* target_logit, const int32_t* targets, rows) and
//   add_exact(int64_t* limbs, const double* x, count), that enqueues them on the stream.
// Matrix products and attention are its own.
template <class Backend>
class CheckedOps : public Ops {
 public:
  void split_heads(Stream& stream, TensorView heads, ConstTensorView rows, std::int64_t first_column) final;
  void merge_heads(Stream& stream, TensorView rows, ConstTensorView heads, std::int64_t first_column) final;
  void rope(Stream& stream, TensorView x, ConstTensorView cos, ConstTensorView sin, ConstTensorView position,
            Transpose inverse) final;
  void rms_norm_forward(Stream& stream, TensorView y, TensorView rstd, ConstTensorView x, ConstTensorView weight, float eps) final;
  void rms_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, ConstTensorView d_y, ConstTensorView x,
                         ConstTensorView weight, ConstTensorView rstd, Accumulate accumulate_x, Accumulate accumulate_weight) final;
  void layer_norm_forward(Stream& stream, TensorView y, TensorView mean, TensorView rstd, ConstTensorView x, ConstTensorView weight,
                          ConstTensorView bias, float eps) final;
  void layer_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, TensorView d_bias, ConstTensorView d_y,
                           ConstTensorView x, ConstTensorView weight, ConstTensorView mean, ConstTensorView rstd,
                           Accumulate accumulate_x, Accumulate accumulate_weight) final;
  void swiglu_forward(Stream& stream, TensorView out, ConstTensorView gate_up) final;
  void swiglu_backward(Stream& stream, TensorView d_gate_up, ConstTensorView d_out, ConstTensorView gate_up) final;
  void gelu_forward(Stream& stream, TensorView out, ConstTensorView x) final;
  void gelu_backward(Stream& stream, TensorView d_x, ConstTensorView d_out, ConstTensorView x) final;
  void embedding_forward(Stream& stream, TensorView out, ConstTensorView tokens, ConstTensorView table,
                         std::int64_t first_row) final;
  void embedding_backward(Stream& stream, TensorView d_table, ConstTensorView d_out, ConstTensorView tokens,
                          std::int64_t first_row) final;
  void cross_entropy_max(Stream& stream, TensorView row_max, ConstTensorView logits, std::int64_t first_column,
                         std::int64_t vocabulary) final;
  void cross_entropy_stats(Stream& stream, TensorView sum_exp, TensorView target_logit, ConstTensorView logits,
                           ConstTensorView row_max, ConstTensorView targets, std::int64_t first_column,
                           std::int64_t vocabulary) final;
  void cross_entropy_rescale(Stream& stream, TensorView sum_exp, TensorView target_logit, ConstTensorView shard_max,
                             ConstTensorView row_max, ConstTensorView targets, std::int64_t columns, std::int64_t first_column,
                             std::int64_t vocabulary) final;
  void cross_entropy_loss(Stream& stream, TensorView loss, ConstTensorView sum_exp, ConstTensorView target_logit,
                          ConstTensorView targets) final;
  void cross_entropy_backward(Stream& stream, TensorView logits, ConstTensorView row_max, ConstTensorView sum_exp,
                              ConstTensorView targets, std::int64_t first_column, std::int64_t vocabulary, float scale) final;
  void add_bias(Stream& stream, TensorView x, ConstTensorView bias) final;
  void sum_rows(Stream& stream, TensorView out, ConstTensorView x, Accumulate accumulate) final;
  void add(Stream& stream, TensorView out, ConstTensorView a, ConstTensorView b) final;
  void accumulate(Stream& stream, TensorView out, ConstTensorView x) final;
  void dropout(Stream& stream, TensorView out, ConstTensorView x, const DropoutSpec& spec) final;
  void convert(Stream& stream, TensorView out, ConstTensorView x) final;
  void fill_zero(Stream& stream, TensorView out) final;
  void sum_squares(Stream& stream, TensorView out, ConstTensorView x) final;
  void add_exact(Stream& stream, TensorView limbs, ConstTensorView x) final;
  void adamw(Stream& stream, TensorView param, TensorView master, TensorView m, TensorView v, ConstTensorView grad,
             const AdamWParams& params) final;

 protected:
  struct NamedView {
    std::string_view name;
    ConstTensorView view;
  };

  // `operand` holds `count` elements of `dtype` (this shape; as many as `model` and of its dtype) in memory that the backend
  // reaches.
  static void expect(std::string_view operation, std::string_view operand, ConstTensorView view, DType dtype, std::int64_t count);
  static void expect_shape(std::string_view operation, std::string_view operand, ConstTensorView view, DType dtype,
                           const Shape& shape);
  static void expect_like(std::string_view operation, std::string_view operand, ConstTensorView view, ConstTensorView model);
  static void expect_here(std::string_view operation, std::string_view operand, ConstTensorView view);

  // The shape of the product; operands that do not fit together are refused.
  static MatmulShape matmul_shape(const MatmulOperands& operands);
  static void check_attention(std::string_view operation, const AttentionShape& shape);
  // The operands of the queries' shape, of the keys' shape, and the others.
  static void check_attention_operands(std::string_view operation, const AttentionShape& shape,
                                       std::initializer_list<NamedView> of_queries, std::initializer_list<NamedView> of_keys,
                                       ConstTensorView lse, ConstTensorView workspace, std::int64_t workspace_bytes);

 private:
  static void check_heads(std::string_view operation, ConstTensorView heads, ConstTensorView rows, std::int64_t first_column);
  decltype(auto) kernels(Stream& stream) { return static_cast<Backend&>(*this).row_kernels(stream); }
};

}  // namespace trident
