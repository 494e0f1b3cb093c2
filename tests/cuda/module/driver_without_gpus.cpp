// A CUDA driver of a machine without GPUs, for loading the module where there is neither:
// what the runtime asks it for says "no device".
#include <cstdint>
#include <cstring>

extern "C" {

using Result = int;
constexpr Result kSuccess = 0, kNoDevice = 100;

Result cuInit(unsigned) { return kNoDevice; }
Result cuDriverGetVersion(int* version) { return *version = 13000, kSuccess; }
Result cuDeviceGetCount(int* count) { return *count = 0, kNoDevice; }
Result without_device() { return kNoDevice; }
Result cuGetExportTable(const void** table, const void*) { return *table = nullptr, kNoDevice; }

Result cuGetProcAddress_v2(const char* name, void** function, int, std::uint64_t, int* status) {
  if (status != nullptr) *status = 0;
  if (std::strcmp(name, "cuInit") == 0) *function = reinterpret_cast<void*>(&cuInit);
  else if (std::strcmp(name, "cuDriverGetVersion") == 0) *function = reinterpret_cast<void*>(&cuDriverGetVersion);
  else if (std::strcmp(name, "cuGetProcAddress") == 0) *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  else if (std::strcmp(name, "cuGetExportTable") == 0) *function = reinterpret_cast<void*>(&cuGetExportTable);
  else if (std::strcmp(name, "cuDeviceGetCount") == 0) *function = reinterpret_cast<void*>(&cuDeviceGetCount);
  else *function = reinterpret_cast<void*>(&without_device);
  return kSuccess;
}

}  // extern "C"
