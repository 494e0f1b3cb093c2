#include "device/cuda/cuda_device.h"

#include <cstring>
#include <utility>

#include "core/check.h"
#include "device/cuda/cuda_background_reads.h"
#include "device/cuda/cuda_gpus.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/nvtx_ranges.h"

namespace trident {
namespace {

// Communication goes first: others wait for it, and it takes few multiprocessors.
constexpr int kComputePriority = 0, kCommunicationPriority = -1;

cudaDeviceProp properties_of(int number) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, number), "asking what a GPU is");
  return properties;
}

CudaOpsOptions ops_options(int number, const CudaOptions& options) {
  CudaOpsOptions chosen;
  if (options.tf32) chosen.matmul.f32_products = F32Products::kTf32;
  if (!options.deterministic) {
    chosen.matmul.determinism = Determinism::kNotRequired;
    chosen.attention.determinism = Determinism::kNotRequired;
  }
  if (const std::int64_t spare = options.spare_multiprocessors; spare > 0) {
    const int all = properties_of(number).multiProcessorCount;
    if (spare >= all)
      throw ConfigError(fmt::format("cuda.spare_multiprocessors = {}: GPU {} has {}, and products need some; set it to what "
                                    "cuda.nccl_max_ctas allows, or to 0", spare, number, all));
    chosen.matmul.multiprocessors = static_cast<std::int32_t>(all - spare);
  }
  chosen.fused = options.epilogues;
  if (options.autotune) {
    chosen.matmul.autotune.emplace();
    chosen.matmul.autotune->file = *options.autotune;
    chosen.matmul.autotune->device_name = properties_of(number).name;
  }
  return chosen;
}

}  // namespace

CudaDevice::CudaDevice(int number, Doorbell& doorbell, HostAllocator host_memory, const CudaOptions& options, CudaAllocator memory)
    : number_(number),
      host_memory_(std::move(host_memory)),
      memory_(std::move(memory)),
      options_(options),
      ranges_(NvtxRanges::attach()),
      progress_(doorbell),
      host_stream_("host", CpuStream::Mode::kImmediate, progress_),
      compute_stream_(number, "compute", CudaStream::Mode::kImmediate, progress_, kComputePriority),
      ops_(std::make_unique<CudaOps>(number, ops_options(number, options))) {
  progress_.set_ranges(ranges_.get());
  const cudaDeviceProp properties = properties_of(number);
  description_ = fmt::format("cuda {}: {}, sm_{}{}, {} multiprocessors", number, properties.name, properties.major, properties.minor,
                             properties.multiProcessorCount);
}

CudaDevice::~CudaDevice() = default;

Ops& CudaDevice::ops() { return *ops_; }

void CudaDevice::run_capturable(FunctionRef<void()> work) {
  if (options_.graphs) return ops_->graphs().run_capturable(compute_stream_, work);
  work();
}

void CudaDevice::run_announced() { ops_->run_announced(compute_stream_); }

std::vector<std::string> CudaDevice::notes() const {
  std::vector<std::string> notes = memory_notes_;
  for (std::string& note : ops_->attention().notes()) notes.push_back(std::move(note));
  return notes;
}

Stream& CudaDevice::new_stream(std::string name) {
  streams_.push_back(std::make_unique<CudaStream>(number_, std::move(name), CudaStream::Mode::kQueue, progress_, kCommunicationPriority));
  return *streams_.back();
}

Buffer CudaDevice::allocate(std::int64_t bytes, const std::string& name) {
  return memory_ ? memory_(bytes, name, memory_notes_) : allocate_cuda(number_, bytes, name);
}

std::optional<std::int64_t> CudaDevice::free_bytes() const { return free_bytes_of_cuda_gpu(number_); }

Buffer CudaDevice::allocate_host_shared(std::int64_t bytes, const std::string& name) {
  return host_memory_ ? host_memory_(bytes, name) : allocate_host(bytes, name);
}

CudaStream& CudaDevice::own(Stream& stream) const {
  auto* cuda = dynamic_cast<CudaStream*>(&stream);
  TRIDENT_CHECK(cuda != nullptr && cuda->device() == number_, "stream {} is not one of CUDA device {}", stream.name(), number_);
  TRIDENT_CHECK(ops_->graphs().stream() == nullptr, "the host reads or writes memory of CUDA device {} within work that is to be repeated", number_);
  return *cuda;
}

void CudaDevice::write(Stream& stream, TensorView to, const void* from) {
  TRIDENT_CHECK(to.where() == MemoryKind::kDevice || to.empty(), "a write to {} bytes of host memory", to.num_bytes());
  if (to.empty()) return;
  const cudaStream_t handle = own(stream).handle();
  check_cuda(cudaMemcpyAsync(to.data(), from, static_cast<std::size_t>(to.num_bytes()), cudaMemcpyHostToDevice, handle), "copying to the device");
  // CUDA has taken a copy of pageable memory by now; page-locked memory is read when the copy runs.
  cudaPointerAttributes attributes;
  check_cuda(cudaPointerGetAttributes(&attributes, from), "asking what kind of memory a pointer points to");
  if (attributes.type != cudaMemoryTypeUnregistered) stream.synchronize();
}

void CudaDevice::read(Stream& stream, void* to, ConstTensorView from) {
  TRIDENT_CHECK(from.where() == MemoryKind::kDevice || from.empty(), "a read from {} bytes of host memory", from.num_bytes());
  if (from.empty()) return;
  const cudaStream_t handle = own(stream).handle();
  check_cuda(cudaMemcpyAsync(to, from.data(), static_cast<std::size_t>(from.num_bytes()), cudaMemcpyDeviceToHost, handle), "copying from the device");
  stream.synchronize();
}

std::unique_ptr<BackgroundReads> CudaDevice::make_background_reads(std::size_t marks) {
  return std::make_unique<CudaBackgroundReads>(compute_stream_, marks);
}

}  // namespace trident
