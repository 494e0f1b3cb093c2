// The CPU as a device: one object per rank, used by that rank's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/cpu/cpu_features.h"
#include "device/cpu/cpu_ops.h"
#include "device/device.h"
#include "device/host/cpu_stream.h"

namespace trident {

struct CpuDeviceOptions {
  int threads_per_rank = 1;
  // The rank's thread stays on this core, its other compute threads on those after it, each on one.
  std::optional<int> first_core = {};
  // Row kernels of a lower level than the processor has, and no bf16 instructions below AVX-512. For tests.
  std::optional<IsaLevel> level = {};
  // Where the device takes its memory: a segment that peers can reach, say. Not set: private memory of this process.
  HostAllocator memory = {};
  // Text is made token by token: products of few rows are bound by memory then, and a row's results must not depend on the others.
  SmallProducts small_products = SmallProducts::kBlocked;
  // Not set: as this processor multiplies faster. Native only where the level has the instructions.
  std::optional<Bf16Products> bf16_products = {};
};

class CpuDevice final : public Device {
 public:
  // Constructed on the thread that will use it: sets that thread's OpenMP team size and, if asked, its cores. Peers ring
  // `doorbell`, which outlives the device. Throws ConfigError if the cores do not exist or are not allowed.
  CpuDevice(Doorbell& doorbell, const CpuDeviceOptions& options);

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string describe() const override;
  Ops& ops() override { return *ops_; }
  Stream& compute_stream() override { return compute_stream_; }
  Stream& new_stream(std::string name) override;
  Buffer allocate(std::int64_t bytes, const std::string& name) override { return memory_ ? memory_(bytes, name) : allocate_host(bytes, name); }
  Buffer allocate_host_shared(std::int64_t bytes, const std::string& name) override { return allocate(bytes, name); }
  void write(Stream& stream, TensorView to, const void* from) override;
  void read(Stream& stream, void* to, ConstTensorView from) override;
  std::unique_ptr<BackgroundReads> make_background_reads(std::size_t) override { return nullptr; }
  Stream& host_stream() override { return compute_stream_; }
  Progress& progress() override { return progress_; }
  void poll() override { progress_.poll(); }
  std::vector<std::string> notes() const override { return {}; }
  double waited_seconds() const override { return progress_.waited_seconds(); }
  void log_operations(OperationLog* log) override { progress_.set_log(log); }
  void run_capturable(FunctionRef<void()> work) override { work(); }
  Ranges* ranges() override { return nullptr; }

 private:
  CpuFeatures features_;
  IsaLevel level_;
  int threads_;
  Bf16Products bf16_;
  Progress progress_;
  CpuStream compute_stream_;
  std::vector<std::unique_ptr<CpuStream>> streams_;
  std::unique_ptr<CpuOps> ops_;
  HostAllocator memory_;
};

// Whether matrix products in bf16 run on instructions made for them at this level: the processor and the library both have them.
bool has_bf16_products(const CpuFeatures& features, IsaLevel level);
// "avx2", "avx512 with AVX512-BF16", "avx512 with AMX bf16": what kernels run on.
std::string instruction_set(const CpuFeatures& features);

// The first core for a rank when the ranks of this machine are pinned side by side on the cores this process may use; none unless
// those are one block of local_ranks * threads_per_rank cores: other jobs would pin to the same ones of more.
std::optional<int> core_for_rank(int local_rank, int local_ranks, int threads_per_rank);

}  // namespace trident
