// Attention on a CUDA device: cuDNN's fused kernels where cuDNN takes the shape, our own in f32 arithmetic
// (kernels/attention_f32.h) for f32 tensors and for the rest.
//
// One object per device object; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "device/cuda/cudnn_attention_rules.h"
#include "device/cuda/cudnn_handle.h"

namespace trident {

class CudnnAttention {
 public:
  // `handle` outlives the object. cuDNN's forward pass gives the same bits every time, its backward pass where that is required
  // (the default).
  CudnnAttention(const CudnnHandle& handle, const CudnnAttentionOptions& options = {});

  // Makes the plans of forward and backward (about a second each, cuDNN compiles kernels; idempotent) and returns the workspace of
  // either in bytes. Allocates: while planning only.
  std::int64_t prepare(const AttentionShape& shape);
  // Returns prepare()'s answer for this shape; a shape that was not prepared is an InternalError.
  std::int64_t workspace_bytes(const AttentionShape& shape) const;

  // op::AttentionForward and op::AttentionBackward on 16-byte aligned device memory; shapes and dtypes are checked by the caller.
  // `workspace` (256-byte aligned, at least workspace_bytes(shape)) is for this call until it is done: one per stream.
  void forward(cudaStream_t stream, const AttentionShape& shape, TensorView out, TensorView lse, ConstTensorView q,
               ConstTensorView k, ConstTensorView v, ConstTensorView first_key, std::byte* workspace);
  void backward(cudaStream_t stream, const AttentionShape& shape, TensorView d_q, TensorView d_k, TensorView d_v,
                ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                ConstTensorView lse, ConstTensorView first_key, std::byte* workspace);

  // Runs both directions of every shape prepared since the last such call once, on zeros at `operands` (256-byte aligned, at least
  // first_run_bytes() of device memory).
  void run_announced(cudaStream_t stream, std::byte* operands);
  std::int64_t first_run_bytes() const;  // 0: all have been run

  // One line about a prepared shape: who computes it, in how many pieces, with which workspace.
  std::string describe(const AttentionShape& shape) const;
  // One line for every prepared shape in less than f32 that our own, slower kernels compute, and why.
  std::vector<std::string> notes() const;

 private:
  // A direction of a shape, planned.
  struct Pass {
    AttentionPass rule;
    std::optional<CudnnPlan> plan;  // absent: our own kernels
    // Where things lie in the workspace, in bytes; the plan's own workspace comes last.
    std::int64_t delta_at = 0, d_q_sum_at = 0, plan_at = 0, workspace_bytes = 0;
  };
  struct Entry {
    AttentionShape shape;
    Pass forward, backward;
    bool has_run = false;  // by run_announced()
  };

  const Entry* find(const AttentionShape& shape) const;
  const Entry& prepared(const AttentionShape& shape) const;
  Pass plan(const AttentionShape& shape, AttentionDirection direction) const;
  std::string describe(const Pass& pass) const;

  const CudnnHandle& handle_;
  CudnnAttentionOptions options_;
  std::list<Entry> entries_;  // a handful: every layer has the same shape
};

}  // namespace trident
