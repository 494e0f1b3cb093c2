// Where the ranks of a run compute: what device = auto | cpu | cuda comes to on this machine, and a device for each rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "device/device.h"
#include "parallel/cuda_backend.h"
#include "parallel/parallel_context.h"
#include "train/run_plan.h"

namespace trident {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };
std::string_view to_string(DeviceKind kind);

struct DeviceChoice {
  DeviceKind kind = DeviceKind::kCpu;
  std::string why;  // "device = auto: no NVIDIA driver on this machine"
};

// cuda takes the cards, cpu does not look for any, auto takes cards that can be used. ConfigError if cuda was asked for and there are none.
DeviceChoice choose_device(const std::string& asked, CudaBackend& cuda);

// The card of a rank: one each while there are enough, else neighbours share one.
int card_of_rank(int local_rank, int local_ranks, int cards);

// What a rank of `local_ranks` on this machine has; of cards: the one that has the least left for each of its ranks.
MachineFacts machine_facts(const DeviceChoice& choice, CudaBackend& cuda, int local_ranks);

// One line each: why this device, cards that several ranks share or that somebody else uses.
std::vector<std::string> device_notes(const DeviceChoice& choice, CudaBackend& cuda, int local_ranks);

// Dense FLOP/s that the maker names for a card; none for cards not in the table and dtypes other than bf16.
std::optional<double> named_peak_flops(const std::string& card, DType compute);

// Of a rank, on the thread that will use it.
struct RankDeviceOptions {
  int local_rank = 0, local_ranks = 1;
  int threads_per_rank = 1;             // CPU only
  std::optional<int> first_core = {};   // CPU only
  HostAllocator host_memory = {};       // that peers reach; not set: private memory
};
std::unique_ptr<Device> make_rank_device(const DeviceChoice& choice, CudaBackend& cuda, Doorbell& doorbell, const RankDeviceOptions& options);

// How groups of ranks exchange what lies on `device`, which outlives the result's communicators; not set for CPUs.
OnDevice on_device(const DeviceChoice& choice, CudaBackend& cuda, Device& device, DeviceTransport transport);

}  // namespace trident
