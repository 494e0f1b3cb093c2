#include "parallel/cuda/loaded_backend.h"

#include <nccl.h>

#include <optional>
#include <utility>

#include "device/cuda/cuda_cards.h"
#include "device/cuda/cuda_device.h"
#include "parallel/cuda/device_communicators.h"
#include "parallel/cuda/nccl_arguments.h"

namespace trident {
namespace {

class Cuda final : public CudaBackend {
 public:
  const CudaFacts& facts() override {
    if (!facts_) {
      facts_ = find_cuda_cards();
      int nccl = 0;
      if (ncclGetVersion(&nccl) == ncclSuccess) facts_->libraries += fmt::format(", NCCL {}", nccl_version_text(nccl));
    }
    return *facts_;
  }

  std::unique_ptr<Device> make_device(int number, Doorbell& doorbell, HostAllocator host_memory) override {
    return std::make_unique<CudaDevice>(number, doorbell, std::move(host_memory));
  }

  std::unique_ptr<Communicator> on_device(DeviceTransport transport, Device& device, std::unique_ptr<Communicator> host) override {
    auto& cuda = dynamic_cast<CudaDevice&>(device);
    return make_device_communicator(transport, std::move(host), {cuda.number(), &cuda.progress(), cuda.host_memory()});
  }

 private:
  std::optional<CudaFacts> facts_;
};

}  // namespace

std::unique_ptr<CudaBackend> make_loaded_cuda_backend() { return std::make_unique<Cuda>(); }

}  // namespace trident
