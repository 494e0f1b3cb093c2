// Where the ranks of a run compute: what device = auto | cpu | cuda comes to on these machines, and a device for each rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "device/cpu/cpu_device.h"
#include "device/device.h"
#include "parallel/cuda/cuda_backend.h"
#include "parallel/grid/parallel_context.h"
#include "train/config/config_enums.h"
#include "train/plan/run_plan.h"

namespace trident {

// ---- the search for GPUs, which ranks do together: which each process sees, which can be opened, how much memory they have left.
// GPUs are told apart by GpuFacts::id, so it does not matter whether every process sees all GPUs of its node or a launcher shows
// each its own.

// A rank's place on a GPU.
struct GpuSlot {
  GpuFacts gpu;
  int ranks = 1;                // of this run on that GPU
  std::int64_t free_bytes = 0;  // of its memory, while the ranks have opened it and taken nothing yet
};

// The ranks' findings, in words and numbers. Only `gpu_slots` and `problem` differ between processes.
struct GpuSearch {
  std::vector<GpuSlot> gpu_slots;      // of this process's ranks; empty if one of them has no GPU
  std::string problem;              // why not; empty if there are gpu_slots, or nobody looked
  std::vector<std::string> gpus;   // names of the GPUs that ranks of the run compute on, each GPU once
  std::vector<MemoryPool> memory;   // of these GPUs
  std::vector<std::string> notes;   // one line each: GPUs left out, GPUs that somebody else uses, GPUs that ranks share
};

// Collective: every rank's text, by rank (ProcessWorld::all_gather).
using ExchangeTexts = std::function<std::vector<std::string>(const std::string& mine)>;

// The ranks of a run as this process sees them.
struct RunRanks {
  std::vector<int> mine;  // threads: all of them
  ExchangeTexts exchange;
};
RunRanks thread_ranks(int ranks);

// Collective over the run's processes; throws nothing of its own. `asked` = cpu looks for none, but takes part. Opens the GPUs that this process's
// ranks compute on and no others; a GPU with a problem is left out, and all look again without it.
GpuSearch look_for_gpus(AskedDevice asked, CudaBackend& cuda, const RunRanks& ranks);

// Whether this process would take part in a search with a GPU. Where no process of a run would, each may search as
// thread_ranks(1).
bool sees_gpus(AskedDevice asked, CudaBackend& cuda);

// Which of `gpus` GPUs, seen by `ranks` ranks, is that of the rank: one each while there are enough, else neighbours share one.
int gpu_of_rank(int rank, int ranks, int gpus);
// The same for every rank, given the identities of the GPUs that it sees, as the place in that list; -1: it sees none. Ranks that see the same list
// share it out among themselves.
std::vector<int> assign_gpus(const std::vector<std::vector<std::string>>& seen);

// ---- the choice

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
