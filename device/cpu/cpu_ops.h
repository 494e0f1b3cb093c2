// Ops on the CPU: checks shapes and dtypes, then calls oneDNN, the tiled attention or the row kernels, on the calling thread.
#pragma once

#include <cstdint>

#include "device/cpu/cpu_attention.h"
#include "device/cpu/onednn_matmul.h"
#include "device/operations.h"
#include "device/ops.h"
#include "device/row_kernels/row_kernels.h"

namespace trident {

class CpuOps final : public Ops {
 public:
  // The row kernels of one instruction set, and what is not compiled for every set.
  struct Kernels : RowKernels {
    static void cross_entropy_rescale(float* sum_exp, float* target_logit, const float* shard_max, const float* row_max,
                                      const std::int32_t* targets, std::int64_t rows, const VocabularyShard& shard);
    static void cross_entropy_loss(double* loss, float* row_losses, const float* sum_exp, const float* target_logit,
                                   const std::int32_t* targets, std::int64_t rows, const float* weights);
    static void add_exact(std::int64_t* limbs, const double* x, std::int64_t count);
  };

  // `level`: of kernels; the processor must have it.
  CpuOps(IsaLevel level, Bf16Products bf16, SmallProducts small = SmallProducts::kBlocked);

  std::int64_t prepare_matmul(const MatmulShape& shape) override;
  PreparedProduct prepare_fused(const MatmulShape& shape, Epilogue epilogue, std::int64_t rank = 0) override;
  bool try_fused(Stream& stream, const FusedMatmul& fused) override;
  std::int64_t attention_workspace(const AttentionShape& shape) override;
  std::int64_t cached_attention_workspace(const AttentionShape& shape) override;
  bool attends_by_rows() const override { return true; }
  void run(Stream& stream, OperationRef operation) override;

  // For check_and_execute(). Operations run at once, on the calling thread; on a stream that holds operations in progress they come
  // after those.
  void execute(Stream& stream, const op::Matmul& product);
  void execute(Stream& stream, const op::AttentionForward& attention);
  void execute(Stream& stream, const op::CachedAttention& attention);
  void execute(Stream& stream, const op::AttentionBackward& attention);
  template <class Operation>
  void execute(Stream& stream, const Operation& operation) {
    stream.synchronize();
    operation.launch(kernels_);
  }
  // The processor reaches all memory but a GPU's.
  static bool reaches(MemoryKind where) { return where != MemoryKind::kDevice; }

 private:
  template <class Attention>
  void attend(Stream& stream, const Attention& attention);

  Kernels kernels_;
  OnednnMatmul matmul_;
  CpuAttention attention_;
};

}  // namespace trident
