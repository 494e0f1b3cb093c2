// Dense matrix products by cuBLASLt: a plan per product, made while planning; a call sets pointers and launches.
//
// One object per device object; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "device/gpu_workspaces.h"
#include "device/cuda/cublaslt_autotune.h"
#include "device/cuda/cublaslt_layout.h"
#include "device/ops.h"

namespace trident {

class CublasLtHandle;

struct CublasLtOptions {
  F32Products f32_products = F32Products::kF32;
  Determinism determinism = Determinism::kRequired;
  std::int64_t workspace_limit = kGpuProductWorkspace;   // bytes per stream
  std::int32_t multiprocessors = 0;                       // that products take; 0: all of the GPU
  std::optional<AutotuneOptions> autotune = {};           // none: the library's first proposal
};

class CublasLtMatmul {
 public:
  // `handle` outlives the object.
  CublasLtMatmul(const CublasLtHandle& handle, const CublasLtOptions& options);
  ~CublasLtMatmul();
  CublasLtMatmul(const CublasLtMatmul&) = delete;
  CublasLtMatmul& operator=(const CublasLtMatmul&) = delete;

  // As Ops::prepare_matmul: makes what the product needs (idempotent), returns its workspace in bytes. Allocates: while planning
  // only. ConfigError if the library has no algorithm for it within the limits.
  std::int64_t prepare(const MatmulShape& shape);

  // As op::Matmul, on device memory: out (+)= scale op(a) op(b). The product must have been prepared. `workspace` is for this call
  // until it is done: one per stream. Nothing is allocated outside the library.
  //
  // Operands at multiples of 16 bytes give the same bits wherever they lie; others take another algorithm, with other rounding.
  void run(cudaStream_t stream, const MatmulOperands& product);

  // As prepare(), of a product with an epilogue; nothing if the library does not do the two in one.
  std::optional<std::int64_t> prepare_fused(const MatmulShape& shape, Epilogue epilogue);
  // Whether that was prepared, and can be done with operands that lie like these.
  bool can_fuse(const FusedMatmul& fused) const;
  // The operations of Ops that FusedMatmul is for, but a bias gradient is overwritten always, in out's dtype. can_fuse() holds.
  void run_fused(cudaStream_t stream, const FusedMatmul& fused);

  // Runs every plan made since the last such call once, on zeros at `operands` (256-byte aligned, at least first_run_bytes() of
  // device memory), one after the other. What the library refuses after all is then as what it never proposed; ConfigError where
  // there is nothing else for it.
  void run_announced(cudaStream_t stream, std::byte* operands);
  std::int64_t first_run_bytes() const;  // 0: every plan has been run

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace trident
