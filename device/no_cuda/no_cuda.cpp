#include "device/cuda_device.h"

namespace trident {

std::unique_ptr<Device> make_cuda_device(int) {
  throw ConfigError("device = cuda: this binary was built without CUDA; use device = cpu or auto, or build with CUDA");
}

int cuda_device_count() { return 0; }

}  // namespace trident
