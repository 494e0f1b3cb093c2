#include <cstdint>

#include "core/check.h"
#include "parallel/cuda/cuda_backend.h"

namespace trident {
namespace {

constexpr const char* kProblem = "this binary was built without CUDA; use device = cpu or auto, or build where nvcc, cuBLASLt, cuDNN and NCCL are";

class NoCuda final : public CudaBackend {
 public:
  const CudaFacts& facts() override { return facts_; }
  std::string open_gpu(int) override { return kProblem; }
  void close_gpu(int) override {}
  std::int64_t free_bytes(int) override { throw InternalError("memory of a GPU in a binary without CUDA"); }
  std::unique_ptr<Device> make_device(int, Doorbell&, HostAllocator, const CudaOptions&) override { throw ConfigError(fmt::format("device = cuda: {}", kProblem)); }
  std::unique_ptr<Communicator> on_device(DeviceTransport, Device&, Axis, std::unique_ptr<Communicator>) override {
    throw InternalError("a communicator of CUDA devices in a binary without CUDA");
  }

 private:
  const CudaFacts facts_{.gpus = {}, .problem = kProblem, .libraries = ""};
};

}  // namespace

std::unique_ptr<CudaBackend> make_cuda_backend() { return std::make_unique<NoCuda>(); }

}  // namespace trident
