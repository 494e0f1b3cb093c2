// Devices, versions, errors.
#include <cstring>

#include "tests/cuda/simulated/machine.h"

namespace trident::simulated {

namespace {

constexpr int kOldDriver = 12040;

// An H100 as its driver describes it.
void describe(cudaDeviceProp& p, int device) {
  p = {};
  std::strcpy(p.name, "NVIDIA H100 80GB HBM3");
  p.totalGlobalMem = Machine::instance().settings.total_bytes;
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = 227 << 10;
  p.sharedMemPerMultiprocessor = 228 << 10;
  p.reservedSharedMemPerBlock = 1 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647, p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  const int capability = Machine::instance().settings.compute_capability;
  p.major = capability / 10, p.minor = capability % 10;
  p.multiProcessorCount = 132;
  p.memoryBusWidth = 5120;
  p.l2CacheSize = 50 << 20;
  p.persistingL2CacheMaxSize = 32 << 20;
  p.asyncEngineCount = 3;
  p.concurrentKernels = p.unifiedAddressing = p.canMapHostMemory = p.streamPrioritiesSupported = p.ECCEnabled = 1;
  p.hostRegisterSupported = p.cooperativeLaunch = p.clusterLaunch = p.memoryPoolsSupported = 1;
  p.pciDomainID = 0, p.pciBusID = 0x1a + device, p.pciDeviceID = 0;
  std::memset(p.uuid.bytes, 0x40 + device, sizeof p.uuid.bytes);
}

cudaError_t count_devices(int* count) {
  const Settings& settings = Machine::instance().settings;
  *count = 0;
  if (settings.driver != Driver::kPresent) return cudaErrorInsufficientDriver;
  if (settings.devices == 0) return cudaErrorNoDevice;
  *count = settings.devices;
  return cudaSuccess;
}

bool exists(int device) { return device >= 0 && device < Machine::instance().settings.devices; }

int attribute_of(const cudaDeviceProp& p, int device, cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: return p.major;
    case cudaDevAttrComputeCapabilityMinor: return p.minor;
    case cudaDevAttrMultiProcessorCount: return p.multiProcessorCount;
    case cudaDevAttrMaxThreadsPerBlock: return p.maxThreadsPerBlock;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return static_cast<int>(p.sharedMemPerBlockOptin);
    case cudaDevAttrMaxSharedMemoryPerBlock: return static_cast<int>(p.sharedMemPerBlock);
    case cudaDevAttrL2CacheSize: return p.l2CacheSize;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return p.maxThreadsPerMultiProcessor;
    case cudaDevAttrClockRate: return 1980000;
    case cudaDevAttrMemoryClockRate: return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth: return p.memoryBusWidth;
    case cudaDevAttrComputeMode:
      return device == Machine::instance().settings.prohibited ? cudaComputeModeProhibited : cudaComputeModeDefault;
    default: return -1;
  }
}

}  // namespace

}  // namespace trident::simulated

using namespace trident::simulated;

cudaError_t cudaGetDeviceCount(int* count) {
  return plain_call("cudaGetDeviceCount", [&] { return count_devices(count); });
}

cudaError_t cudaSetDevice(int device) {
  return plain_call("cudaSetDevice", [&] {
    int count = 0;
    if (const cudaError_t status = count_devices(&count); status != cudaSuccess) return status;
    if (!exists(device)) return cudaErrorInvalidDevice;
    if (device == Machine::instance().settings.prohibited) return cudaErrorDevicesUnavailable;
    set_current_device(device);
    Machine::instance().opened_devices.insert(device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceReset() {
  return api_call("cudaDeviceReset", [&] {
    for (const auto& [start, allocation] : Machine::instance().allocations) {
      if (allocation.device == current_device()) return cudaErrorInvalidValue;  // the real one frees it under its users
    }
    Machine::instance().opened_devices.erase(current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return api_call("cudaGetDevice", [&] { return *device = current_device(), cudaSuccess; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return api_call("cudaGetDeviceProperties", [&] {
    if (!exists(device)) return cudaErrorInvalidDevice;
    describe(*properties, device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return api_call("cudaDeviceGetAttribute", [&] {
    if (!exists(device)) return cudaErrorInvalidDevice;
    cudaDeviceProp properties;
    describe(properties, device);
    *value = attribute_of(properties, device, attribute);
    return *value >= 0 ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return api_call("cudaDeviceGetPCIBusId", [&] {
    if (!exists(device)) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(length), "00000000:%02X:00.0", static_cast<unsigned>(0x1a + device));
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return plain_call("cudaDriverGetVersion", [&] {
    const Settings& s = Machine::instance().settings;
    const int present = s.driver_version != 0 ? s.driver_version : CUDART_VERSION;
    *version = s.driver == Driver::kNone ? 0 : s.driver == Driver::kTooOld ? kOldDriver : present;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return plain_call("cudaRuntimeGetVersion", [&] { return *version = CUDART_VERSION, cudaSuccess; });
}

cudaError_t cudaGetLastError() {
  const Call call;
  return take_last_error();
}

cudaError_t cudaPeekAtLastError() {
  const Call call;
  return peek_last_error();
}
