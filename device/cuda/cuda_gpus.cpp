#include "device/cuda/cuda_gpus.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/host_name.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernels/kernel_list.h"

namespace trident {
namespace {

constexpr const char* kArchitectures = TRIDENT_CUDA_ARCHITECTURES;  // "80-real, 90a-real": those that the kernels were compiled for

std::string libraries() {
  int runtime = 0;
  check_cuda(cudaRuntimeGetVersion(&runtime), "asking for the version of CUDA");
  const std::size_t cublas = cublasLtGetVersion(), cudnn = cudnnGetVersion();
  return fmt::format("{}, cuBLASLt {}.{}, cuDNN {}.{}", cuda_version_text(runtime), cublas / 10000, cublas / 100 % 100, cudnn / 10000, cudnn / 100 % 100);
}

// As nvidia-smi writes it. The address on the bus is the same for all parts of a divided GPU; it stands in where a driver gives no UUID.
std::string gpu_id(const cudaDeviceProp& properties, const std::string& place) {
  std::string text = "GPU-";
  bool known = false;
  for (std::size_t i = 0; i < sizeof properties.uuid.bytes; ++i) {
    const auto byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
    known = known || byte != 0;
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", byte);
  }
  return known ? text : fmt::format("{} {}", host_name(), place);
}

void describe(GpuFacts& gpu) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, gpu.number), "asking what a GPU is");
  gpu.name = properties.name;
  gpu.compute_capability = 10 * properties.major + properties.minor;
  gpu.multiprocessors = properties.multiProcessorCount;
  gpu.total_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  std::array<char, 32> address{};
  check_cuda(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), gpu.number), "asking where a GPU is");
  gpu.place = address.data();
  gpu.id = gpu_id(properties, gpu.place);
  int mode = cudaComputeModeDefault;
  check_cuda(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, gpu.number), "asking who may use a GPU");
  if (mode == cudaComputeModeProhibited) gpu.problem = "its compute mode is Prohibited; set it to Default (nvidia-smi -c 0)";
}

GpuFacts gpu_facts(int number) {
  GpuFacts gpu;
  gpu.number = number;
  try {
    describe(gpu);
  } catch (const Error& error) {
    gpu.problem = error.what();
  }
  if (gpu.name.empty()) gpu.name = "unknown";
  return gpu;
}

}  // namespace

CudaFacts find_cuda_gpus() {
  CudaFacts facts;
  try {
    facts.libraries = libraries();
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "looking for GPUs");
    for (int number = 0; number < count; ++number) facts.gpus.push_back(gpu_facts(number));
    if (count == 0) facts.problem = "no GPU is visible to this process (CUDA_VISIBLE_DEVICES?)";
  } catch (const Error& error) {
    facts.problem = error.what();
  }
  const bool none = std::ranges::none_of(facts.gpus, [](const GpuFacts& gpu) { return gpu.problem.empty(); });
  if (facts.problem.empty() && none) facts.problem = fmt::format("GPU 0 ({}): {}", facts.gpus.front().name, facts.gpus.front().problem);
  return facts;
}

std::string open_cuda_gpu(const GpuFacts& gpu) {
  try {
    use_cuda_device(gpu.number);
    check_cuda(cudaFree(nullptr), "opening a GPU");  // older libraries make the context with the first call that needs it
    for (const auto* kernel = cuda_kernels::ListedKernel::first(); kernel != nullptr; kernel = kernel->next()) {
      cudaFuncAttributes attributes;
      const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel->function());  // brings it to the GPU
      if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
        cudaGetLastError();
        return fmt::format("this binary has code for {}, and the GPU is sm_{}; build with -DCMAKE_CUDA_ARCHITECTURES={}-real, or set device = cpu",
                           kArchitectures, gpu.compute_capability, gpu.compute_capability);
      }
      check_cuda(status, "bringing a kernel to a GPU");
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void close_cuda_gpu(int number) {
  // A GPU that cannot be closed goes with the process.
  if (cudaSetDevice(number) != cudaSuccess || cudaDeviceReset() != cudaSuccess) cudaGetLastError();
}

std::int64_t free_bytes_of_cuda_gpu(int number) {
  std::size_t free = 0, total = 0;
  use_cuda_device(number);
  check_cuda(cudaMemGetInfo(&free, &total), "asking how much memory a GPU has");
  return static_cast<std::int64_t>(free);
}

}  // namespace trident
