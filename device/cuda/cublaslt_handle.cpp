#include "device/cuda/cublaslt_handle.h"

#include "core/check.h"
#include "device/cuda/blamed_error.h"
#include "device/cuda/cuda_error.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

Diagnosis diagnose(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return {Blame::kSetup, "nvidia-smi must work, with a driver that is at least as new as the CUDA libraries"};
    case CUBLAS_STATUS_ALLOC_FAILED:
      return {Blame::kSetup, "device memory is used up: a smaller micro-batch, or end the processes that nvidia-smi lists"};
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return {Blame::kSetup, "this GPU and this version of cuBLASLt do not have it; another compute dtype may work"};
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return {Blame::kProgram, "a kernel failed, perhaps an earlier one: CUDA_LAUNCH_BLOCKING=1 shows which"};
    default: return {Blame::kProgram, "the library was called wrongly"};
  }
}

}  // namespace

void check_cublas(cublasStatus_t status, std::string_view what, int device) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  const AllocationExemption message;
  const auto [blame, remedy] = diagnose(status);
  throw_blamed(blame, fmt::format("cuBLASLt on device {}: {}: {} ({}); {}", device, what, cublasLtGetStatusName(status),
                                  cublasLtGetStatusString(status), remedy));
}

CublasLtHandle::CublasLtHandle(int device) : device_(device) {
  use_cuda_device(device);
  check_cublas(cublasLtCreate(&handle_), "cublasLtCreate", device);
}

// The driver takes what the library cannot give back at the end of the program.
CublasLtHandle::~CublasLtHandle() { (void)cublasLtDestroy(handle_); }

}  // namespace trident
