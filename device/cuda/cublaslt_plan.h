// One product as the library wants it: descriptors that live as long as the plan, and the algorithm that was chosen for it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/cublaslt_handle.h"
#include "device/cuda/cublaslt_layout.h"

namespace trident {

// The operands of a product in our terms; device pointers.
struct MatmulPointers {
  void* out = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  void* workspace = nullptr;
  const void* bias = nullptr;  // where the epilogue has one; what kBiasGradient writes
  const void* aux = nullptr;   // likewise; what kBiasGelu writes
};

// The limits of an algorithm: from the heuristic's preferences to the check of a remembered choice.
struct AlgorithmLimits {
  MatmulAlignments alignments;
  std::uint32_t allowed_reductions = 0;
  std::int64_t workspace_limit = 0;  // bytes
};

// An algorithm for a product and the workspace it needs.
struct Algorithm {
  cublasLtMatmulAlgo_t data{};
  std::int64_t workspace_bytes = 0;
};

class CublasLtPlan {
 public:
  // Fills the descriptors. `what` describes the product in messages.
  CublasLtPlan(const CublasLtHandle& handle, const MatmulLayout& layout, std::string what);
  // Descriptors stay where the library initialised them.
  CublasLtPlan(const CublasLtPlan&) = delete;
  CublasLtPlan& operator=(const CublasLtPlan&) = delete;

  // At most `count` algorithms within the limits, the library's favourite first; empty if it has none.
  std::vector<Algorithm> ask(const AlgorithmLimits& limits, int count);
  // Whether `algorithm` (of a file, say) computes this product within the limits on this device; sets its workspace.
  bool accepts(Algorithm& algorithm, const AlgorithmLimits& limits);
  void choose(const Algorithm& algorithm) { algorithm_ = algorithm; }
  std::int64_t workspace_bytes() const { return algorithm_.workspace_bytes; }
  const std::string& what() const { return what_; }

  // Enqueues the product with the chosen algorithm, or another one. The handle's device must be the current one.
  void run(const MatmulPointers& pointers, cudaStream_t stream) { run(pointers, stream, algorithm_); }
  void run(const MatmulPointers& pointers, cudaStream_t stream, const Algorithm& algorithm);

 private:
  void check(cublasStatus_t status, const char* function) const;
  bool within(const Algorithm& algorithm, const AlgorithmLimits& limits) const;
  void set_epilogue_pointers(const void* bias, const void* aux);
  void assume_alignment(std::uint32_t bytes);

  const CublasLtHandle& handle_;
  MatmulLayout layout_;
  std::string what_;
  cublasLtMatmulDescOpaque_t operation_{};
  cublasLtMatrixLayoutOpaque_t a_{}, b_{}, d_{};
  Algorithm algorithm_;
};

}  // namespace trident
