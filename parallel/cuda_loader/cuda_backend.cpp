// CUDA loaded when a run asks for it, and only where there is a driver.
//
// The libraries of CUDA take about 100 MB of private memory of every process that loads them and half a second of its start, so the
// program itself is not linked with them: the backend is a module beside it. Without a driver, without the module or without one of the
// libraries the program runs on CPUs and says why.
#include <dlfcn.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "parallel/cuda/cuda_backend.h"

namespace trident {
namespace {

constexpr const char* kDriver = "libcuda.so.1";
constexpr const char* kModule = "trident_cuda.so";
constexpr const char* kMaker = "trident_make_cuda_backend";  // module.cpp

// Beside the executable, or where an installation has it.
std::vector<std::filesystem::path> module_places() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  return {folder / kModule, folder.parent_path() / "lib" / kModule};
}

std::string last_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "no reason given";
}

class DlopenCudaBackend final : public CudaBackend {
 public:
  const CudaFacts& facts() override { return load() ? loaded_->facts() : none_; }
  std::string open_gpu(int number) override { return load() ? loaded_->open_gpu(number) : none_.problem; }
  void close_gpu(int number) override {
    if (loaded_ != nullptr) loaded_->close_gpu(number);
  }
  std::int64_t free_bytes(int number) override {
    TRIDENT_CHECK(loaded_ != nullptr, "memory of a GPU before CUDA is loaded");
    return loaded_->free_bytes(number);
  }
  std::unique_ptr<Device> make_device(int number, Doorbell& doorbell, HostAllocator host_memory, const CudaOptions& options) override {
    if (!load()) throw ConfigError(fmt::format("device = cuda: {}", none_.problem));
    return loaded_->make_device(number, doorbell, std::move(host_memory), options);
  }
  std::unique_ptr<Communicator> on_device(DeviceTransport transport, Device& device, Axis axis, std::unique_ptr<Communicator> host) override {
    TRIDENT_CHECK(loaded_ != nullptr, "a communicator of CUDA devices before CUDA is loaded");
    return loaded_->on_device(transport, device, axis, std::move(host));
  }

 private:
  // Once. Modules stay loaded: code of theirs may run until the process ends.
  bool load() {
    if (!std::exchange(tried_, true)) none_.problem = try_to_load();
    return loaded_ != nullptr;
  }

  // Returns the reason why it cannot be loaded; empty if it is.
  std::string try_to_load() {
    if (dlopen(kDriver, RTLD_LAZY | RTLD_LOCAL) == nullptr) {
      return fmt::format("no NVIDIA driver found: {} is not there; install one or set device = cpu", kDriver);
    }
    for (const std::filesystem::path& place : module_places()) {
      std::error_code error;
      if (!std::filesystem::exists(place, error)) continue;
      void* module = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (module == nullptr) {
        return fmt::format("{} cannot be loaded ({}); install that library of NVIDIA's or name its folder in LD_LIBRARY_PATH, or set device = cpu",
                           place.string(), last_error());
      }
      auto* make = reinterpret_cast<CudaBackend* (*)()>(dlsym(module, kMaker));
      if (make == nullptr) return fmt::format("{} is not of this program ({}); copy both from one build", place.string(), last_error());
      loaded_.reset(make());
      return "";
    }
    return fmt::format("{} is not beside the program; copy it there from the build, or set device = cpu", kModule);
  }

  bool tried_ = false;
  CudaFacts none_;
  std::unique_ptr<CudaBackend> loaded_;
};

}  // namespace

std::unique_ptr<CudaBackend> make_cuda_backend() { return std::make_unique<DlopenCudaBackend>(); }

}  // namespace trident
