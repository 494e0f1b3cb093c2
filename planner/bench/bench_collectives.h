// The rates of collectives, measured by ranks together, beside the least that moving their bytes could take.
#pragma once

#include "core/cuda_options.h"
#include "parallel/mpi/process_world.h"
#include "planner/bench/bench_report.h"
#include "train/launch/rank_devices.h"

namespace trident {

struct CollectiveOptions {
  CudaOptions cuda = {};  // NCCL's blocks; memory is not registered
  int threads_per_rank = 1;
  double megabytes = 0;  // of each operand; 0: 16 on CPUs, 256 on GPUs
};

// Between `ranks` threads of this process, on the gpu_slots of `choice`; CPUs: in host memory.
CollectiveRates rates_between_threads(const DeviceChoice& choice, CudaBackend& cuda, DeviceTransport transport, int ranks, const CollectiveOptions& options);

// By NCCL, between as many threads as this process sees usable GPUs, each on one; a single one exchanges with itself. Skipped with the reason where
// there are none, or NCCL fails.
CollectiveRates nccl_rates_between_gpus(CudaBackend& cuda, const CollectiveOptions& options);

// Between the processes of a job: the same on every rank but for the times of each. Collective over the job; opens GPUs. One entry for each
// way in which they could exchange.
std::vector<CollectiveRates> rates_between_processes(ProcessWorld& world, AskedDevice asked, CudaBackend& cuda,
                                                     const CollectiveOptions& options);

}  // namespace trident
