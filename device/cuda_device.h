// How the rest of the program gets a CUDA device. Implemented by device/cuda, or by its twin device/no_cuda in binaries built
// without CUDA; which one is decided when the program is linked.
#pragma once

#include <memory>

#include "device/device.h"

namespace trident {

// The device with this number on this machine. Throws ConfigError if there is none or the binary was built without CUDA.
std::unique_ptr<Device> make_cuda_device(int number);

// Devices this process can use; 0 in binaries built without CUDA.
int cuda_device_count();

}  // namespace trident
