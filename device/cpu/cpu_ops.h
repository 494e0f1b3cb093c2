// Ops on the CPU: checks shapes and dtypes, then calls oneDNN, the tiled attention or the row kernels, on the calling thread.
#pragma once

#include "device/cpu/cpu_attention.h"
#include "device/cpu/onednn_matmul.h"
#include "device/ops.h"
#include "device/row_kernels/row_kernels.h"

namespace trident {

class CpuOps final : public Ops {
 public:
  // `level`: of the row kernels; the processor must have it.
  CpuOps(IsaLevel level, Bf16Products bf16);

  std::int64_t prepare_matmul(const MatmulShape& shape) override;
  void matmul(Stream& stream, TensorView out, ConstTensorView a, Transpose transpose_a, ConstTensorView b, Transpose transpose_b,
              Accumulate accumulate, TensorView workspace) override;
  std::int64_t attention_workspace(const AttentionShape& shape) override;
  void attention_forward(Stream& stream, const AttentionShape& shape, TensorView out, TensorView lse, ConstTensorView q,
                         ConstTensorView k, ConstTensorView v, TensorView workspace) override;
  void attention_backward(Stream& stream, const AttentionShape& shape, TensorView d_q, TensorView d_k, TensorView d_v,
                          ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                          ConstTensorView lse, TensorView workspace) override;
  void split_heads(Stream& stream, TensorView heads, ConstTensorView rows, std::int64_t first_column) override;
  void merge_heads(Stream& stream, TensorView rows, ConstTensorView heads, std::int64_t first_column) override;
  void rope(Stream& stream, TensorView x, ConstTensorView cos, ConstTensorView sin, ConstTensorView position,
            Transpose inverse) override;
  void rms_norm_forward(Stream& stream, TensorView y, TensorView rstd, ConstTensorView x, ConstTensorView weight,
                        float eps) override;
  void rms_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, ConstTensorView d_y, ConstTensorView x,
                         ConstTensorView weight, ConstTensorView rstd, Accumulate accumulate_x,
                         Accumulate accumulate_weight) override;
  void layer_norm_forward(Stream& stream, TensorView y, TensorView mean, TensorView rstd, ConstTensorView x, ConstTensorView weight,
                          ConstTensorView bias, float eps) override;
  void layer_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, TensorView d_bias, ConstTensorView d_y,
                           ConstTensorView x, ConstTensorView weight, ConstTensorView mean, ConstTensorView rstd,
                           Accumulate accumulate_x, Accumulate accumulate_weight) override;
  void swiglu_forward(Stream& stream, TensorView out, ConstTensorView gate_up) override;
  void swiglu_backward(Stream& stream, TensorView d_gate_up, ConstTensorView d_out, ConstTensorView gate_up) override;
  void gelu_forward(Stream& stream, TensorView out, ConstTensorView x) override;
  void gelu_backward(Stream& stream, TensorView d_x, ConstTensorView d_out, ConstTensorView x) override;
  void embedding_forward(Stream& stream, TensorView out, ConstTensorView tokens, ConstTensorView table,
                         std::int64_t first_row) override;
  void embedding_backward(Stream& stream, TensorView d_table, ConstTensorView d_out, ConstTensorView tokens,
                          std::int64_t first_row) override;
  void cross_entropy_max(Stream& stream, TensorView row_max, ConstTensorView logits, std::int64_t first_column,
                         std::int64_t vocabulary) override;
  void cross_entropy_stats(Stream& stream, TensorView stats, ConstTensorView logits, ConstTensorView row_max,
                           ConstTensorView targets, std::int64_t first_column, std::int64_t vocabulary) override;
  void cross_entropy_loss(Stream& stream, TensorView loss, ConstTensorView stats, ConstTensorView targets) override;
  void cross_entropy_backward(Stream& stream, TensorView logits, ConstTensorView row_max, ConstTensorView stats,
                              ConstTensorView targets, std::int64_t first_column, std::int64_t vocabulary, float scale) override;
  void add_bias(Stream& stream, TensorView x, ConstTensorView bias) override;
  void sum_rows(Stream& stream, TensorView out, ConstTensorView x, Accumulate accumulate) override;
  void add(Stream& stream, TensorView out, ConstTensorView a, ConstTensorView b) override;
  void accumulate(Stream& stream, TensorView out, ConstTensorView x) override;
  void dropout(Stream& stream, TensorView out, ConstTensorView x, const DropoutSpec& spec) override;
  void convert(Stream& stream, TensorView out, ConstTensorView x) override;
  void fill_zero(Stream& stream, TensorView out) override;
  void sum_squares(Stream& stream, TensorView out, ConstTensorView x) override;
  void add_exact(Stream& stream, TensorView limbs, ConstTensorView x) override;
  void adamw(Stream& stream, TensorView param, TensorView master, TensorView m, TensorView v, ConstTensorView grad,
             const AdamWParams& params) override;

 private:
  const RowKernels& kernels_;
  OnednnMatmul matmul_;
  CpuAttention attention_;
};

}  // namespace trident
