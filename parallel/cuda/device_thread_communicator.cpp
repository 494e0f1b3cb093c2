#include "parallel/cuda/device_thread_communicator.h"

#include <cstdint>
#include <set>

#include "device/cuda/cuda_error.h"
#include "device/cuda/kernels/kernels.h"

namespace trident {

DeviceThreadCommunicator::DeviceThreadCommunicator(std::unique_ptr<Communicator> host_communicator, const DevicePlace& place)
    : LaneCommunicator(std::move(host_communicator), place),
      work_(place.device, size(), host().split(all_ranks(host()), fmt::format("{} (acknowledgements)", name()))) {
  if (size() > cuda_kernels::kMaxSources)
    throw ConfigError(fmt::format("{}: {} ranks as threads on CUDA devices, at most {} can add up; start the ranks as processes",
                                  name(), size(), cuda_kernels::kMaxSources));
  reach_peers();
}

void DeviceThreadCommunicator::reach_peers() {
  use_cuda_device(place().device);
  const std::vector<std::int64_t> gpus = gather_now({place().device});
  std::int64_t unreachable = -1;
  for (const std::int64_t gpu : std::set<std::int64_t>(gpus.begin(), gpus.end())) {
    if (gpu == place().device) continue;
    int reachable = 0;
    check_cuda(cudaDeviceCanAccessPeer(&reachable, place().device, static_cast<int>(gpu)),
               "asking whether GPUs reach each other");
    if (reachable == 0) {
      unreachable = gpu;
      continue;
    }
    const cudaError_t status = cudaDeviceEnablePeerAccess(static_cast<int>(gpu), 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled)
      cudaGetLastError();  // by another communicator of this process; the error is not kept
    else check_cuda(status, fmt::format("letting device {} reach device {}", place().device, gpu));
  }
  const std::vector<std::int64_t> verdicts = gather_now({unreachable});
  for (std::size_t r = 0; r < verdicts.size(); ++r)
    if (verdicts[r] >= 0)
      throw ConfigError(
          fmt::format("{}: device {} of rank {} cannot reach the memory of device {}; start the ranks as processes, or put them on "
                      "one GPU",
                      name(), gpus[r], global_ranks()[r], verdicts[r]));
}

std::unique_ptr<Lane> DeviceThreadCommunicator::make_lane(const CollectiveCall&, const std::string& name) {
  return std::make_unique<Lane>(name, size(), 0, allocate_host, progress());
}

}  // namespace trident
