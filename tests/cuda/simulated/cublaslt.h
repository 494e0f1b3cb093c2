// Tests ask this of the simulated cuBLASLt beside its C interface.
//
// It offers several algorithms for a product, the ones that a careful caller must not take first: a proposal that failed, partial
// sums added as they arrive (other bits every time), partial sums rounded to the output's type, one with a workspace beyond 32 MiB.
// All round differently. Its functions fail on demand by fail_next("cublasLtMatmul", CUBLAS_STATUS_...).
#pragma once

#include <cstdint>

namespace trident::simulated {

struct CublasLtCounts {
  std::int64_t handles = 0;         // that live
  std::int64_t heuristics = 0;      // questions asked of the heuristic
  std::int64_t products = 0;        // enqueued
  std::int64_t fused = 0;           // of them, with an epilogue
  std::int32_t last_multiprocessors = 0;  // that the last product was for; 0: all
  std::int32_t last_algorithm = 0;  // its id, of the last product enqueued
};
CublasLtCounts cublaslt_counts();

}  // namespace trident::simulated
