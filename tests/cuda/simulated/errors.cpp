// Names and texts of errors, in the real library's words.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define TRIDENT_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    TRIDENT_ERROR(cudaSuccess, "no error"),
    TRIDENT_ERROR(cudaErrorInvalidValue, "invalid argument"),
    TRIDENT_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    TRIDENT_ERROR(cudaErrorInitializationError, "initialization error"),
    TRIDENT_ERROR(cudaErrorCudartUnloading, "driver shutting down"),
    TRIDENT_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TRIDENT_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    TRIDENT_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    TRIDENT_ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    TRIDENT_ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    TRIDENT_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    TRIDENT_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    TRIDENT_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    TRIDENT_ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    TRIDENT_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    TRIDENT_ERROR(cudaErrorNvlinkUncorrectable, "uncorrectable NVLink error detected during the execution"),
    TRIDENT_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TRIDENT_ERROR(cudaErrorNotReady, "device not ready"),
    TRIDENT_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    TRIDENT_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    TRIDENT_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    TRIDENT_ERROR(cudaErrorContextIsDestroyed, "context is destroyed"),
    TRIDENT_ERROR(cudaErrorAssert, "device-side assert triggered"),
    TRIDENT_ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    TRIDENT_ERROR(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    TRIDENT_ERROR(cudaErrorHardwareStackError, "hardware stack error"),
    TRIDENT_ERROR(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    TRIDENT_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    TRIDENT_ERROR(cudaErrorInvalidAddressSpace, "operation not supported on global/shared address space"),
    TRIDENT_ERROR(cudaErrorInvalidPc, "invalid program counter"),
    TRIDENT_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    TRIDENT_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    TRIDENT_ERROR(cudaErrorNotSupported, "operation not supported"),
    TRIDENT_ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    TRIDENT_ERROR(cudaErrorSystemDriverMismatch, "system has unsupported display driver / cuda driver combination"),
    TRIDENT_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    TRIDENT_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    TRIDENT_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    TRIDENT_ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    TRIDENT_ERROR(cudaErrorStreamCaptureWrongThread, "attempt to terminate a thread-local capture sequence from another thread"),
    TRIDENT_ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    TRIDENT_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef TRIDENT_ERROR

const ErrorText* find(cudaError_t error) {
  const auto* const found =
      std::find_if(std::begin(kErrors), std::end(kErrors), [&](const ErrorText& e) { return e.error == error; });
  return found == std::end(kErrors) ? nullptr : found;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* const found = find(error);
  return found != nullptr ? found->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* const found = find(error);
  return found != nullptr ? found->text : "unrecognized error code";
}
