// The rates of collectives, measured by ranks together, beside the least that moving their bytes could take.
#pragma once

#include "parallel/process_world.h"
#include "train/bench_report.h"
#include "train/rank_devices.h"

namespace trident {

// Between `ranks` threads of this process, on the seats of `choice`; CPUs: in host memory. `megabytes`: of each operand; 0: 16 on CPUs, 256 on cards.
CollectiveRates rates_between_threads(const DeviceChoice& choice, CudaBackend& cuda, DeviceTransport transport, int threads_per_rank, int ranks,
                                      double megabytes = 0);

// By NCCL, between as many threads as this process sees usable cards, each on one; a single one exchanges with itself. Skipped with the reason where
// there are none, or NCCL fails.
CollectiveRates nccl_rates_between_cards(CudaBackend& cuda, double megabytes = 0);

// Between the processes of a job: the same on every rank but for the times of each. Collective over the job; opens cards. One entry for each
// way in which they could exchange.
std::vector<CollectiveRates> rates_between_processes(ProcessWorld& world, const std::string& asked, CudaBackend& cuda, int threads_per_rank,
                                                     double megabytes = 0);

}  // namespace trident
