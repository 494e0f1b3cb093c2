#include "device/cuda/cuda_ops.h"

#include <algorithm>
#include <optional>

#include "core/check.h"
#include "device/cuda/cuda_gpus.h"
#include "device/cuda/cuda_memory.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/kernels/cached_attention.h"

namespace trident {
namespace {

bool adds_bias_gradient(Epilogue epilogue, Accumulate accumulate) {
  return epilogue == Epilogue::kBiasGradient && accumulate == Accumulate::kYes;
}
// A bias gradient of so many elements that is added to another lies in scratch memory first.
bool summand_fits(Epilogue epilogue, Accumulate accumulate, std::int64_t elements) {
  return !adds_bias_gradient(epilogue, accumulate) || elements <= cuda_kernels::kScratchFloats;
}

}  // namespace

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

void CudaOps::execute(Stream& stream, const op::Matmul& product) {
  const MatmulOperands& p = product.operands;
  const cudaStream_t work = handle(stream);
  if (graphs_.note("matmul", p.out, p.a, p.transpose_a, p.b, p.transpose_b, p.accumulate, p.workspace, p.scale)) return;
  matmul_.run(work, p);
}

// ---- products and what follows them

PreparedProduct CudaOps::prepare_fused(const MatmulShape& shape, Epilogue epilogue, std::int64_t /*rank*/) {
  // One by one where operands lie so that the library cannot do both.
  const std::int64_t one_by_one = matmul_.prepare(shape);
  if (!fuses(epilogue)) return {one_by_one, false};
  const std::optional<std::int64_t> at_once = matmul_.prepare_fused(shape, epilogue);
  return {std::max(one_by_one, at_once.value_or(0)),
          at_once.has_value() && summand_fits(epilogue, shape.accumulate, shape.m)};
}

bool CudaOps::try_fused(Stream& stream, const FusedMatmul& f) {
  if (!fuses(f.epilogue) || !matmul_.can_fuse(f)) return false;
  const cudaStream_t work = handle(stream);
  if (!summand_fits(f.epilogue, f.product.accumulate, f.result.num_elements())) return false;
  if (adds_bias_gradient(f.epilogue, f.product.accumulate)) {
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
  op::check_attention("attention_workspace", shape);
  return attention_.prepare(shape);
}

namespace {

// The model asks attends_by_rows() first.
template <class Attention>
void expect_heads(const Attention& a) {
  for (const ConstTensorView operand : {ConstTensorView(a.out), a.q, a.k, a.v})
    TRIDENT_CHECK(operand.shape().rank() == 4, "{}: rows {}, where heads are read alone", a.kName.name, to_string(operand.shape()));
  if constexpr (requires { a.rotation; })
    TRIDENT_CHECK(!a.rotation.turns(), "{}: heads that turn, where they are read as they are", a.kName.name);
}

}  // namespace

void CudaOps::execute(Stream& stream, const op::AttentionForward& a) {
  expect_heads(a);
  expect_room(a.kName.name, a.workspace, attention_.workspace_bytes(a.shape));
  const cudaStream_t work = handle(stream);
  if (graphs_.note("attention_forward", a.shape, a.out, a.lse, a.q, a.k, a.v, a.first_key, a.workspace)) return;
  attention_.forward(work, a.shape, a.out, a.lse, a.q, a.k, a.v, a.first_key, a.workspace.data());
}

// Our own kernel for every type: a library's plan is for one offset, and here each pass has others.
std::int64_t CudaOps::cached_attention_workspace(const AttentionShape& shape) {
  op::check_attention("cached_attention_workspace", shape);
  return 0;
}

void CudaOps::execute(Stream& stream, const op::CachedAttention& a) {
  expect_heads(a);
  const cudaStream_t work = handle(stream);
  if (graphs_.note("cached_attention", a.shape, a.first, a.out, a.lse, a.q, a.k, a.v, a.first_key)) return;
  const AttentionShape& s = a.shape;
  cuda_kernels::cached_attention(work, row_type(s.dtype), a.out.data(), a.lse.as<float>(), a.q.data(), a.k.data(), a.v.data(),
                                 {s.batch, s.query_heads, s.kv_heads, s.query_length, s.key_length, s.head_dim, s.scale, s.softcap,
                                  s.interval > 0 ? a.first_key.as<std::int32_t>() : nullptr},
                                 a.first.data());
}

void CudaOps::execute(Stream& stream, const op::AttentionBackward& a) {
  expect_heads(a);
  expect_room(a.kName.name, a.workspace, attention_.workspace_bytes(a.shape));
  const cudaStream_t work = handle(stream);
  if (graphs_.note("attention_backward", a.shape, a.d_q, a.d_k, a.d_v, a.d_out, a.out, a.q, a.k, a.v, a.lse, a.first_key,
                   a.workspace))
    return;
  attention_.backward(work, a.shape, a.d_q, a.d_k, a.d_v, a.d_out, a.out, a.q, a.k, a.v, a.lse, a.first_key, a.workspace.data());
}

// ---- first runs

void CudaOps::run_announced(CudaStream& stream) {
  const cudaStream_t work = handle(stream);
  const std::int64_t bytes = std::max(matmul_.first_run_bytes(), attention_.first_run_bytes());
  if (bytes == 0) return;
  // Allocating beyond what is free would be an error of CUDA's: better asked before, and caught where others take it meanwhile.
  if (bytes > free_bytes_of_cuda_gpu(device_)) return;
  Buffer operands;
  try {
    operands = allocate_cuda(device_, bytes, "operands of first runs");
  } catch (const ConfigError&) {
    return;
  }
  matmul_.run_announced(work, operands.data());
  attention_.run_announced(work, operands.data());
  stream.synchronize();
}

}  // namespace trident
