#include "device/cuda/cuda_error.h"

#include "core/check.h"
#include "device/cuda/blamed_error.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

std::string driver_remedy() {
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess || driver == 0)
    return "this machine has no NVIDIA driver; install one or set device = cpu";
  return fmt::format("the NVIDIA driver is for {} and this binary needs {}; update the driver or set device = cpu",
                     cuda_version_text(driver), cuda_version_text(runtime));
}

Diagnosis diagnose(cudaError_t status) {
  constexpr const char* kRestart =
      "the GPU, its link or its driver failed: restart from the last checkpoint, and look for Xid in the system log if it happens "
      "again";
  switch (status) {
    case cudaErrorMemoryAllocation:
      return {Blame::kSetup,
              "make batch.micro smaller, set recompute.policy = full, shard more with parallel.zero, or use more ranks"};
    case cudaErrorInsufficientDriver: return {Blame::kSetup, driver_remedy()};
    case cudaErrorNoDevice:
      return {Blame::kSetup, "no GPU is visible to this process (CUDA_VISIBLE_DEVICES?); set device = cpu to go without"};
    case cudaErrorInvalidDevice: return {Blame::kSetup, "there are fewer GPUs than that on this machine; start fewer ranks on it"};
    case cudaErrorDevicesUnavailable:
      return {Blame::kSetup,
              "another process holds the GPU for itself; wait for it, choose another GPU, or set its compute mode to Default"};
    case cudaErrorNoKernelImageForDevice:
      return {Blame::kSetup, "this binary has no code for this GPU; build with its number in CMAKE_CUDA_ARCHITECTURES"};
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorInitializationError:
      return {Blame::kSetup,
              "the NVIDIA driver is not in working order; see what nvidia-smi says, and restart its services or the machine"};
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case static_cast<cudaError_t>(226):  // cudaErrorContained, which the oldest headers lack
    case cudaErrorUnknown: return {Blame::kHardware, kRestart};
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return {Blame::kProgram,
              "a kernel started earlier failed, perhaps not this one; please report it, with the output of compute-sanitizer if "
              "you can"};
    default: return {Blame::kProgram, "please report it"};
  }
}

[[noreturn]] void throw_cuda_error(cudaError_t status, std::string_view what) {
  const AllocationExemption message;
  int device = -1;
  std::string where;
  if (cudaGetDevice(&device) == cudaSuccess) where = fmt::format(" on CUDA device {}", device);
  cudaGetLastError();  // the runtime keeps it for whoever asks next
  const auto [blame, remedy] = diagnose(status);
  throw_blamed(blame, fmt::format("{}: {} ({}){}; {}", what, cudaGetErrorName(status), cudaGetErrorString(status), where, remedy));
}

}  // namespace

void check_cuda(cudaError_t status, std::string_view what) {
  if (status != cudaSuccess) [[unlikely]]
    throw_cuda_error(status, what);
}

void use_cuda_device(int device) {
  if (const cudaError_t status = cudaSetDevice(device); status != cudaSuccess) [[unlikely]] {
    const AllocationExemption message;
    throw_cuda_error(status, fmt::format("CUDA device {}", device));
  }
}

std::string cuda_version_text(int version) { return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10); }

}  // namespace trident
