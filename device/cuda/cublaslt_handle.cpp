#include "device/cuda/cublaslt_handle.h"

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

struct CublasRemedy {
  std::string_view text;
  bool is_bug = false;  // of this program; otherwise the machine or its set-up
};

CublasRemedy remedy(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return {"nvidia-smi must work, with a driver that is at least as new as the CUDA libraries"};
    case CUBLAS_STATUS_ALLOC_FAILED:
      return {"device memory is used up: a smaller micro-batch, or end the processes that nvidia-smi lists"};
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return {"this GPU and this version of cuBLASLt do not have it; another compute dtype may work"};
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return {"a kernel failed, perhaps an earlier one: CUDA_LAUNCH_BLOCKING=1 shows which", true};
    default: return {"the library was called wrongly", true};
  }
}

}  // namespace

void check_cublas(cublasStatus_t status, std::string_view what, int device) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  const AllocationExemption message;
  const CublasRemedy r = remedy(status);
  const std::string text = fmt::format("cuBLASLt on device {}: {}: {} ({}); {}", device, what, cublasLtGetStatusName(status),
                                       cublasLtGetStatusString(status), r.text);
  if (r.is_bug) throw InternalError(text);
  throw ConfigError(text);
}

CublasLtHandle::CublasLtHandle(int device) : device_(device) {
  use_cuda_device(device);
  check_cublas(cublasLtCreate(&handle_), "cublasLtCreate", device);
}

// The driver takes what the library cannot give back at the end of the program.
CublasLtHandle::~CublasLtHandle() { (void)cublasLtDestroy(handle_); }

}  // namespace trident
