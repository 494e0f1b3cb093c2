// Errors of the CUDA runtime as errors of this program.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace trident {

// Throws unless `status` is success. One line: `what` (what was being done), the error's name and text, the device, the remedy.
// ConfigError: no device, no driver or one too old, no memory, a device that is taken. CommunicationError: the GPU, its link or
// its driver failed, so that other ranks wait in vain. InternalError: everything else, for it is this program's doing. Failures of
// kernels show in whatever call comes later; `what` is then not to blame, and the message says so.
void check_cuda(cudaError_t status, std::string_view what);

// The calling thread works on this device from now on.
void use_cuda_device(int device);

// "CUDA 13.0", from the number CUDA gives a version.
std::string cuda_version_text(int version);

}  // namespace trident
