#include <cuda_runtime_api.h>

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernels/launch.h"
#include "device/no_allocation.h"

namespace trident {

void throw_launch_error(cudaError_t status, std::string_view name, const LaunchShape& shape) {
  const AllocationExemption message;
  check_cuda(status, fmt::format("kernel {} with {} x {} x {} blocks of {} x {} x {} threads and {} bytes of shared memory", name,
                                 shape.blocks.x, shape.blocks.y, shape.blocks.z, shape.threads.x, shape.threads.y, shape.threads.z,
                                 shape.shared_bytes));
  throw InternalError(fmt::format("kernel {}: a launch that succeeded was taken for a failure", name));
}

}  // namespace trident
