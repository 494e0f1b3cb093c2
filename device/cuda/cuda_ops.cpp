#include "device/cuda/cuda_ops.h"

#include <algorithm>
#include <cstdint>

#include "device/cuda/cuda_memory.h"
#include "device/cuda/cuda_stream.h"

namespace trident {

CudaOps::CudaOps(int device, const CudaOpsOptions& options)
    : device_(device),
      fused_(options.fused),
      blas_(device),
      cudnn_(device),
      matmul_(blas_, options.matmul),
      attention_(cudnn_, options.attention),
      scratch_(allocate_cuda(device, cuda_kernels::kScratchFloats * size_of(DType::kF32), "scratch memory of kernels")),
      graphs_(device) {}

cudaStream_t CudaOps::handle(Stream& stream) const {
  auto* const cuda = dynamic_cast<CudaStream*>(&stream);
  TRIDENT_CHECK(cuda != nullptr && cuda->device() == device_, "stream {} is no CUDA stream of device {}", stream.name(), device_);
  TRIDENT_CHECK(graphs_.stream() == nullptr || graphs_.stream() == cuda, "an operation on stream {} within work that is to be repeated on {}",
                stream.name(), graphs_.stream()->name());
  return cuda->handle();
}

cuda_kernels::Scratch CudaOps::scratch(Stream& stream) {
  // Kernels of one stream follow one another; those of another stream wait for them.
  if (scratch_user_ != nullptr && scratch_user_ != &stream) stream.wait(scratch_user_->record());
  scratch_user_ = &stream;
  return {reinterpret_cast<float*>(scratch_.data()), cuda_kernels::kScratchFloats};
}

// ---- matrix products

std::int64_t CudaOps::prepare_matmul(const MatmulShape& shape) { return matmul_.prepare(shape); }

void CudaOps::matmul(Stream& stream, TensorView out, ConstTensorView a, Transpose transpose_a, ConstTensorView b,
                     Transpose transpose_b, Accumulate accumulate, TensorView workspace) {
  const cudaStream_t work = handle(stream);
  if (graphs_.note("matmul", out, a, transpose_a, b, transpose_b, accumulate, workspace)) return;
  matmul_.run(work, out, a, transpose_a, b, transpose_b, accumulate, workspace);
}

// ---- products and what follows them

std::int64_t CudaOps::prepare_fused(const MatmulShape& shape, Epilogue epilogue) {
  // One by one where operands lie so that the library cannot do both.
  const std::int64_t one_by_one = matmul_.prepare(shape);
  if (fused_ == FusedProducts::kNo) return one_by_one;
  return std::max(one_by_one, matmul_.prepare_fused(shape, epilogue).value_or(0));
}

bool CudaOps::try_fused(Stream& stream, const FusedMatmul& f) {
  if (fused_ == FusedProducts::kNo || !matmul_.can_fuse(f)) return false;
  const cudaStream_t work = handle(stream);
  const MatmulOperands& p = f.product;
  if (f.epilogue == Epilogue::kBiasGradient && p.accumulate == Accumulate::kYes) {
    if (f.result.num_elements() > cuda_kernels::kScratchFloats) return false;
    add_bias_gradient(stream, f);
    return true;
  }
  if (!graphs_.note("fused matmul", f)) matmul_.run_fused(work, f);
  return true;
}

void CudaOps::add_bias_gradient(Stream& stream, const FusedMatmul& f) {
  const cuda_kernels::Scratch memory = scratch(stream);
  if (graphs_.note("fused matmul adding a bias gradient", f, memory)) return;
  FusedMatmul summand = f;
  summand.result = TensorView(reinterpret_cast<std::byte*>(memory.data), DType::kF32, f.result.shape(), MemoryKind::kDevice);
  matmul_.run_fused(handle(stream), summand);
  cuda_kernels::accumulate(handle(stream), f.result.as<float>(), memory.data, f.result.num_elements());
}

// ---- attention

std::int64_t CudaOps::attention_workspace(const AttentionShape& shape) {
  check_attention("attention_workspace", shape);
  return attention_.prepare(shape);
}

void CudaOps::attention_forward(Stream& stream, const AttentionShape& s, TensorView out, TensorView lse, ConstTensorView q,
                                ConstTensorView k, ConstTensorView v, TensorView workspace) {
  constexpr std::string_view kName = "attention_forward";
  check_attention(kName, s);
  check_attention_operands(kName, s, {{"out", out}, {"q", q}}, {{"k", k}, {"v", v}}, lse, workspace, attention_.workspace_bytes(s));
  const cudaStream_t work = handle(stream);
  if (graphs_.note("attention_forward", s, out, lse, q, k, v, workspace)) return;
  attention_.forward(work, s, out, lse, q, k, v, workspace.data());
}

void CudaOps::attention_backward(Stream& stream, const AttentionShape& s, TensorView d_q, TensorView d_k, TensorView d_v,
                                 ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k,
                                 ConstTensorView v, ConstTensorView lse, TensorView workspace) {
  constexpr std::string_view kName = "attention_backward";
  check_attention(kName, s);
  check_attention_operands(kName, s, {{"d_q", d_q}, {"d_out", d_out}, {"out", out}, {"q", q}},
                           {{"d_k", d_k}, {"d_v", d_v}, {"k", k}, {"v", v}}, lse, workspace, attention_.workspace_bytes(s));
  const cudaStream_t work = handle(stream);
  if (graphs_.note("attention_backward", s, d_q, d_k, d_v, d_out, out, q, k, v, lse, workspace)) return;
  attention_.backward(work, s, d_q, d_k, d_v, d_out, out, q, k, v, lse, workspace.data());
}

}  // namespace trident
