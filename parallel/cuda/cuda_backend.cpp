#include "parallel/cuda/loaded_backend.h"

#include <nccl.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include "core/at.h"
#include "core/check.h"
#include "device/cuda/cuda_gpus.h"
#include "device/cuda/cuda_device.h"
#include "parallel/cuda/device_communicators.h"
#include "parallel/cuda/nccl_arguments.h"
#include "parallel/cuda/nccl_communicator.h"

namespace trident {
namespace {

class Cuda final : public CudaBackend {
 public:
  // Before ranks have threads, and before CUDA and NCCL read their environment. What the user has set stays.
  Cuda() {
    // A rank has more streams than CUDA has queues by default, and streams that share one wait for each other.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*replace=*/0);
    if (ncclGetVersion(&nccl_) != ncclSuccess) return;
    chooses_order_ = std::getenv(kNcclLaunchOrder) == nullptr;
    for (const auto& [name, value] : nccl_environment()) setenv(name.c_str(), value.c_str(), /*replace=*/0);
  }

  const CudaFacts& facts() override {
    if (!facts_) {
      facts_ = find_cuda_gpus();
      if (nccl_ > 0) facts_->libraries += fmt::format(", NCCL {}", nccl_version_text(nccl_));
    }
    return *facts_;
  }

  std::string open_gpu(int number) override { return open_cuda_gpu(gpu(number)); }
  void close_gpu(int number) override { close_cuda_gpu(number); }
  std::int64_t free_bytes(int number) override { return free_bytes_of_cuda_gpu(number); }

  std::unique_ptr<Device> make_device(int number, Doorbell& doorbell, HostAllocator host_memory, const CudaOptions& options) override {
    // Before the library reads it, at the first communicator.
    if (options.nccl_any_order && chooses_order_)
      std::call_once(any_order_, [] { setenv(kNcclLaunchOrder, "0", /*replace=*/1); });
    CudaAllocator memory;
    if (options.nccl_register) {
      memory = [number](std::int64_t bytes, const std::string& name, std::vector<std::string>& notes) {
        NcclMemory made = allocate_nccl(number, bytes, name);
        if (!made.ordinary_because.empty())
          notes.push_back(fmt::format("cuda.nccl_register: {} is ordinary memory, for NCCL gives none ({})", name, made.ordinary_because));
        return std::move(made.buffer);
      };
    }
    return std::make_unique<CudaDevice>(number, doorbell, std::move(host_memory), options, std::move(memory));
  }

  std::unique_ptr<Communicator> on_device(DeviceTransport transport, Device& device, Axis axis, std::unique_ptr<Communicator> host) override {
    auto& cuda = dynamic_cast<CudaDevice&>(device);
    return make_device_communicator(transport, std::move(host), {cuda.number(), &cuda.progress(), cuda.host_memory()},
                                    {.staged = {}, .nccl = nccl_options(axis, cuda.options())});
  }

 private:
  const GpuFacts& gpu(int number) {
    const std::vector<GpuFacts>& gpus = facts().gpus;
    TRIDENT_CHECK(number >= 0 && number < static_cast<int>(gpus.size()), "GPU {} of {}", number, gpus.size());
    return at(gpus, number);
  }

  int nccl_ = 0;  // version
  bool chooses_order_ = false;  // of launches: the user has not
  std::once_flag any_order_;
  std::optional<CudaFacts> facts_;
};

}  // namespace

std::unique_ptr<CudaBackend> make_loaded_cuda_backend() { return std::make_unique<Cuda>(); }

}  // namespace trident
