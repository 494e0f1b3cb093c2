// A GPU as the device of one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda_options.h"
#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "device/host/cpu_stream.h"

namespace trident {

class CudaOps;

// Zero-filled memory of a GPU, as allocate_cuda() gives it; adds a line to `notes` where it is not what was asked for.
using CudaAllocator = std::function<Buffer(std::int64_t bytes, const std::string& name, std::vector<std::string>& notes)>;

class CudaDevice final : public Device {
 public:
  // Made and used by the rank's thread; peers ring `doorbell`, which outlives the device. Several ranks may have devices on one GPU.
  // `host_memory`: of allocate_host_shared(); not set: memory of this process. `memory`: of allocate(); not set: allocate_cuda().
  // ConfigError if the GPU cannot be used.
  CudaDevice(int number, Doorbell& doorbell, HostAllocator host_memory, const CudaOptions& options = {}, CudaAllocator memory = {});
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  // "cuda 0: NVIDIA H100 80GB HBM3, sm_90; cuBLASLt 13.1, cuDNN 9.19"
  std::string describe() const override { return description_; }
  Ops& ops() override;
  Stream& compute_stream() override { return compute_stream_; }
  Stream& new_stream(std::string name) override;
  Buffer allocate(std::int64_t bytes, const std::string& name) override;
  std::optional<std::int64_t> free_bytes() const override;
  Buffer allocate_host_shared(std::int64_t bytes, const std::string& name) override;
  void write(Stream& stream, TensorView to, const void* from) override;
  void read(Stream& stream, void* to, ConstTensorView from) override;
  std::unique_ptr<BackgroundReads> make_background_reads(std::size_t marks) override;
  Stream& host_stream() override { return host_stream_; }
  Progress& progress() override { return progress_; }
  void poll() override { progress_.poll(); }
  void run_announced() override;
  std::vector<std::string> notes() const override;
  double waited_seconds() const override { return progress_.waited_seconds(); }
  void log_operations(OperationLog* log) override { progress_.set_log(log); }
  void run_capturable(FunctionRef<void()> work) override;
  Ranges* ranges() override { return ranges_.get(); }

  int number() const { return number_; }
  const CudaOptions& options() const { return options_; }
  // The arguments of allocate_host_shared().
  const HostAllocator& host_memory() const { return host_memory_; }

 private:
  CudaStream& own(Stream& stream) const;

  int number_;
  HostAllocator host_memory_;
  CudaAllocator memory_;
  std::vector<std::string> memory_notes_;
  CudaOptions options_;
  std::unique_ptr<Ranges> ranges_;
  Progress progress_;
  CpuStream host_stream_;
  CudaStream compute_stream_;
  std::vector<std::unique_ptr<CudaStream>> streams_;
  std::unique_ptr<CudaOps> ops_;
  std::string description_;
};

}  // namespace trident
