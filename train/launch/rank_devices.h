// Where the ranks of a run compute: what device = auto | cpu | cuda comes to on these machines, and a device for each rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "device/cpu/cpu_device.h"
#include "device/device.h"
#include "parallel/cuda/cuda_backend.h"
#include "parallel/grid/parallel_context.h"
#include "train/launch/gpu_search.h"
#include "train/plan/run_plan.h"

namespace trident {

struct DeviceChoice {
  DeviceKind kind = DeviceKind::kCpu;
  std::string why;   // "device = auto: no NVIDIA driver on this machine"
  GpuSearch found;  // on GPUs
};

// cuda takes the GPUs, auto takes them if there is one for each of this process's ranks. ConfigError if cuda was asked for and
// there is none.
DeviceChoice choose_device(AskedDevice asked, CudaBackend& cuda, GpuSearch found);

// This process found its machine's memory, shared by `local_ranks`, or that of all the run's GPUs; products that the oldest of its
// GPUs has. `bf16_over_fp32`: of this machine's processors; not set: this process measures it.
MachineFacts machine_facts(const DeviceChoice& choice, int local_ranks, std::optional<double> bf16_over_fp32 = {});

// The sum of the dense FLOP/s that the maker names for GPUs; none where one of them is not in the table or a part of a divided GPU,
// and for dtypes other than bf16 and f16.
std::optional<double> named_peak_flops(const std::vector<std::string>& gpus, DType compute);

// Makes a rank's device on the thread that will use it.
struct RankDeviceOptions {
  int gpu_slot = 0;           // which of this process's ranks it is; GPUs only
  CpuDeviceOptions cpu = {};  // of which GPUs take the memory, too, that peers reach
  CudaOptions cuda = {};      // GPUs only
};
std::unique_ptr<Device> make_rank_device(const DeviceChoice& choice, CudaBackend& cuda, Doorbell& doorbell, const RankDeviceOptions& options);

// ConfigError where memory is to be registered with NCCL (cuda.nccl_register) that NCCL does not see.
void check_nccl_register(const CudaOptions& config, const DeviceChoice& choice, int ranks, const TransportChoice& transport);

// How groups of ranks exchange what lies on `device`, which outlives the result's communicators; not set for CPUs.
OnDevice on_device(const DeviceChoice& choice, CudaBackend& cuda, Device& device, DeviceTransport transport);

}  // namespace trident
