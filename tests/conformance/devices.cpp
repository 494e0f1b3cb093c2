#include "tests/conformance/devices.h"

#include <charconv>

#include "device/cpu/cpu_device.h"

namespace trident::conformance {

namespace {

// N of "cuda:N", 0 of "cuda".
int gpu_of(const std::string& name) {
  constexpr std::string_view kCuda = "cuda", kNumbered = "cuda:";
  int gpu = 0;
  if (name == kCuda) return gpu;
  const char* end = name.data() + name.size();
  const bool numbered = name.starts_with(kNumbered) && std::from_chars(name.data() + kNumbered.size(), end, gpu).ptr == end;
  if (!numbered || gpu < 0 || name.size() == kNumbered.size())
    throw ConfigError(fmt::format("--device {}: say cpu, cuda or cuda:N", name));
  return gpu;
}

}  // namespace

NamedDevice::NamedDevice(const std::string& name, int threads, const CudaOptions& cuda) {
  if (name == "cpu") {
    device_ = std::make_unique<CpuDevice>(bell_, CpuDeviceOptions{threads, std::nullopt, std::nullopt});
  } else {
    const int gpu = gpu_of(name);
    cuda_ = make_cuda_backend();
    device_ = cuda_->make_device(gpu, bell_, {}, cuda);
  }
}

}  // namespace trident::conformance
