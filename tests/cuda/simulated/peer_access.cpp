// GPUs that reach each other's memory: all do, unless a test injects a failure of cudaDeviceCanAccessPeer, which then says no.
#include <cuda_runtime_api.h>

#include <set>
#include <utility>

#include "tests/cuda/simulated/machine.h"

using namespace trident::simulated;

cudaError_t cudaDeviceCanAccessPeer(int* reachable, int device, int peer) {
  const Call lock;
  const int devices = settings().devices;
  if (device < 0 || device >= devices || peer < 0 || peer >= devices) return cudaErrorInvalidDevice;
  *reachable = device != peer && !injected_failure("cudaDeviceCanAccessPeer") ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return api_call("cudaDeviceEnablePeerAccess", [&] {
    static std::set<std::pair<int, int>> enabled;  // as in one process: once for every pair
    if (flags != 0) return cudaErrorInvalidValue;
    if (peer < 0 || peer >= settings().devices || peer == current_device()) return cudaErrorInvalidDevice;
    return enabled.emplace(current_device(), peer).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}
