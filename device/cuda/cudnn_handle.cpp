#include "device/cuda/cudnn_handle.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cudnn_attention_rules.h"
#include "device/cuda/cudnn_graph.h"
#include "device/no_allocation.h"

namespace trident {

CudnnHandle::CudnnHandle(int device) : device_(device) {
  if (const auto problem = cudnn_version_problem(cudnnGetVersion())) throw ConfigError("device = cuda: " + *problem);
  use_cuda_device(device);
  check_cuda(cudaDeviceGetAttribute(&compute_major_, cudaDevAttrComputeCapabilityMajor, device),
             "asking for the compute capability");
  if (const cudnnStatus_t status = cudnnCreate(&handle_); status != CUDNN_STATUS_SUCCESS)
    throw ConfigError(
        fmt::format("device = cuda: cuDNN {} cannot be used on CUDA device {}: {}; nvidia-smi must work, and cuDNN's libraries "
                    "must all be of one version, for this version of CUDA",
                    cudnn_version_text(cudnnGetVersion()), device, cudnnGetErrorString(status)));
}

CudnnHandle::~CudnnHandle() { (void)cudnnDestroy(handle_); }

void CudnnHandle::use(cudaStream_t stream) const {
  use_cuda_device(device_);
  const AllocationExemption library;  // makes events for streams that it sees for the first time
  check_cudnn(cudnnSetStream(handle_, stream), "cudnnSetStream", "attention");
}

}  // namespace trident
