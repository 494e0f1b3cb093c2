// Attention in tiles (Dao et al. 2022, "FlashAttention"): scores exist for one tile of queries and keys at a time, and the
// backward pass computes them again from the log-sum-exp. Products by OnednnMatmul on dense tiles, the rest by AttentionRows.
//
// Each (sample, head) is computed by itself with tiles that depend on lengths and head width alone, so a head's numbers do not
// depend on how many heads a rank holds. Sums run over tiles in ascending order.
#pragma once

#include <cstdint>

#include "device/cpu/attention_rows.h"
#include "device/cpu/onednn_matmul.h"
#include "device/ops.h"

namespace trident {

class CpuAttention {
 public:
  // `matmul` outlives the object.
  CpuAttention(OnednnMatmul& matmul, const RowKernels& kernels);

  // Announces the products of forward and backward; returns the workspace of either in bytes.
  std::int64_t prepare(const AttentionShape& shape);
  // Returns prepare()'s answer for this shape; a shape that was not prepared is an InternalError.
  std::int64_t workspace_bytes(const AttentionShape& shape) const;
  // Shapes, dtypes and what first_key holds as in device/ops.h; checked by the caller.
  void forward(const AttentionShape& shape, TensorView out, TensorView lse, ConstTensorView q, ConstTensorView k, ConstTensorView v,
               ConstTensorView first_key, std::byte* workspace);
  void backward(const AttentionShape& shape, TensorView d_q, TensorView d_k, TensorView d_v, ConstTensorView d_out,
                ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView lse,
                ConstTensorView first_key, std::byte* workspace);

 private:
  struct Workspace;
  struct Backward;
  static Workspace lay_out(const AttentionShape& shape, std::byte* base);
  void multiply(const MatmulShape& shape, void* out, const void* a, const void* b, const Workspace& w);
  void forward_head(const AttentionShape& shape, std::byte* out, float* lse, const std::byte* q, const std::byte* k,
                    const std::byte* v, const std::int32_t* first_key, const Workspace& w);
  void backward_tile(const AttentionShape& shape, const Backward& call, std::int64_t head, std::int64_t first_query,
                     std::int64_t first_key, const Workspace& w);
  void backward_group(const AttentionShape& shape, const Backward& call, const Workspace& w);

  OnednnMatmul& matmul_;
  const RowKernels& kernels_;
  AttentionRows rows_;
};

}  // namespace trident
