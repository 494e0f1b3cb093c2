// Tests ask this of the simulated cuDNN beside its C interface.
//
// It knows the descriptors that attention graphs use, is strict about their attributes, and computes a graph operation by
// operation on host memory. Of the engines it proposes, the first cannot be planned, the second says that its sums have no fixed
// order (and they have none), the third is what a careful caller takes. A plan's workspace is garbage before and after the plan
// runs. Its functions fail on demand by fail_next("cudnnBackendExecute", CUDNN_STATUS_...); so does finalizing a plan, by the name
// "execution plan", and fail_next("cudnnGetVersion", 90100) is that version.
#pragma once

#include <cstdint>

namespace trident::simulated {

struct CudnnCounts {
  std::int64_t handles = 0, descriptors = 0;  // that live
  std::int64_t plans = 0;                     // made
  std::int64_t executions = 0;                // enqueued
  std::int64_t last_engine = -1;              // of the last execution
};
CudnnCounts cudnn_counts();

}  // namespace trident::simulated
