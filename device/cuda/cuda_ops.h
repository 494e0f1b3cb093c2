// Ops on a CUDA device: cuBLASLt, cuDNN and our own kernels, enqueued on the CudaStream of each call.
#pragma once

#include <cstdint>
#include <string_view>

#include "device/buffer.h"
#include "device/cuda/cublaslt_handle.h"
#include "device/cuda/cublaslt_matmul.h"
#include "device/cuda/cuda_graphs.h"
#include "device/cuda/cudnn_attention.h"
#include "device/cuda/kernels/kernels.h"
#include "device/operations.h"
#include "device/ops.h"

namespace trident {

class CudaStream;

struct CudaOpsOptions {
  CublasLtOptions matmul;
  bool fused = false;  // what follows a product is left to the library where it can (Ops::matmul_bias and the others)
  CudnnAttentionOptions attention;
};

// Calls return when the work is enqueued. Operands lie in device memory, or in pinned memory, which kernels reach slowly; streams
// are CudaStreams of this device. Not thread-safe.
class CudaOps final : public Ops {
 public:
  // Allocates scratch memory on the device. Throws ConfigError where the device or its libraries cannot be used.
  explicit CudaOps(int device, const CudaOpsOptions& options = {});

  std::int64_t prepare_matmul(const MatmulShape& shape) override;
  PreparedProduct prepare_fused(const MatmulShape& shape, Epilogue epilogue, std::int64_t rank = 0) override;
  bool try_fused(Stream& stream, const FusedMatmul& fused) override;
  std::int64_t attention_workspace(const AttentionShape& shape) override;
  std::int64_t cached_attention_workspace(const AttentionShape& shape) override;
  bool attends_by_rows() const override { return false; }
  void run(Stream& stream, OperationRef operation) override;

  // As Device::run_announced(), on `stream`.
  void run_announced(CudaStream& stream);

  const CudnnAttention& attention() const { return attention_; }
  CudaGraphs& graphs() { return graphs_; }

  // For check_and_execute().
  static bool reaches(MemoryKind where) { return where != MemoryKind::kHost; }
  void execute(Stream& stream, const op::Matmul& product);
  void execute(Stream& stream, const op::AttentionForward& attention);
  void execute(Stream& stream, const op::CachedAttention& attention);
  void execute(Stream& stream, const op::AttentionBackward& attention);
  template <class Operation>
  void execute(Stream& stream, const Operation& operation);

 private:
  class Kernels;
  // The stream of a call. Throws InternalError unless it is a CudaStream of this device.
  cudaStream_t handle(Stream& stream) const;
  // Scratch memory for the next kernel on `stream`, which comes after those on other streams that use it.
  cuda_kernels::Scratch scratch(Stream& stream);

  // The library writes bias gradients, it does not add to them: that is a kernel of its own.
  void add_bias_gradient(Stream& stream, const FusedMatmul& fused);

  int device_;
  bool fused_;
  CublasLtHandle blas_;
  CudnnHandle cudnn_;
  // The library's epilogues add no matrix; its C would have to be another than its D.
  bool fuses(Epilogue epilogue) const { return fused_ && epilogue != Epilogue::kSummands; }

  CublasLtMatmul matmul_;
  CudnnAttention attention_;
  Buffer scratch_;
  CudaGraphs graphs_;
  Stream* scratch_user_ = nullptr;  // the stream that used the scratch memory last
};

}  // namespace trident
