// Memory of the simulated devices, and pinned memory of the host.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/cuda/simulated/fault_report.h"
#include "tests/cuda/simulated/machine.h"
#include "tests/cuda/simulated/poison.h"

namespace trident::simulated {

namespace {

constexpr std::size_t kGuardPage = 4096;
constexpr std::size_t kMallocAlignment = 256;
constexpr std::size_t kFillAtMost = std::size_t{256} << 20;  // larger memory is not touched before it is used
constexpr int kGarbage = 0xFF;                               // not a number, or -1

std::size_t round_to(std::size_t bytes, std::size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

void protect(const Allocation& allocation, int protection) {
  if (mprotect(allocation.mapping + kGuardPage, allocation.mapping_bytes - 2 * kGuardPage, protection) == 0) return;
  std::fprintf(stderr, "simulated CUDA: the protection of device memory cannot be changed\n");
  std::abort();
}

}  // namespace

const Allocation* Machine::find(const void* data, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return nullptr;
  const auto& [start, allocation] = *--after;
  return address + bytes <= start + allocation.bytes && address >= start ? &allocation : nullptr;
}

std::size_t Machine::used(int device) const {
  std::size_t bytes = settings.used_bytes;
  for (const auto& [start, allocation] : allocations)
    if (allocation.kind == Allocation::Kind::kDevice && allocation.device == device)
      bytes += round_to(allocation.bytes, kMallocAlignment);
  return bytes;
}

// Between two pages that cannot be touched, as near to the second as the alignment allows.
void* Machine::allocate(Allocation::Kind kind, int device, std::size_t bytes) {
  const std::size_t aligned = round_to(std::max<std::size_t>(bytes, 1), kMallocAlignment), pages = round_to(aligned, kGuardPage);
  if (kind == Allocation::Kind::kDevice && used(device) + aligned > settings.total_bytes) return nullptr;
  void* mapped = mmap(nullptr, pages + 2 * kGuardPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const mapping = static_cast<std::byte*>(mapped);
  report_faults();
  if (mprotect(mapping + kGuardPage, pages, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::byte* const start = mapping + kGuardPage + pages - aligned;
  if (aligned <= kFillAtMost) std::memset(start, kGarbage, aligned);
  poison(start + bytes, aligned - bytes);
  poison(mapping + kGuardPage, pages - aligned);
  allocations[reinterpret_cast<std::uintptr_t>(start)] = {kind, device, bytes, start, mapping, pages + 2 * kGuardPage};
  if (kind == Allocation::Kind::kDevice && !memory_open_) protect(allocations[reinterpret_cast<std::uintptr_t>(start)], PROT_NONE);
  return start;
}

void Machine::open_memory() {
  if (std::exchange(memory_open_, true)) return;
  for (const auto& [start, allocation] : allocations)
    if (allocation.kind == Allocation::Kind::kDevice) protect(allocation, PROT_READ | PROT_WRITE);
}

void Machine::close_memory() {
  if (settings.host_guard == HostGuard::kOff || !std::exchange(memory_open_, false)) return;
  for (const auto& [start, allocation] : allocations)
    if (allocation.kind == Allocation::Kind::kDevice) protect(allocation, PROT_NONE);
}

// The addresses stay reserved, so that whoever still uses them is found out.
bool Machine::release(void* data, Allocation::Kind kind) {
  const auto found = allocations.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == allocations.end() || found->second.kind != kind) return false;
  const Allocation allocation = found->second;
  if (kind == Allocation::Kind::kDevice) {
    wait_for(points_of_device(allocation.device));
  } else {
    for (int device = 0; device < settings.devices; ++device) wait_for(points_of_device(device));
  }
  allocations.erase(reinterpret_cast<std::uintptr_t>(data));
  if (kind == Allocation::Kind::kRegistered) return true;
  freed_.push_back(allocation);
  mmap(allocation.mapping, allocation.mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return true;
}

std::string Machine::describe_address(std::uintptr_t address) const {
  const auto text = [&](const Allocation& a, const char* state) {
    const auto start = reinterpret_cast<std::uintptr_t>(a.start);
    const std::string of = std::to_string(a.bytes) + " bytes of " + state +
                           (a.kind == Allocation::Kind::kDevice ? "memory of device " + std::to_string(a.device) : "pinned memory");
    if (address < start) return std::to_string(start - address) + " bytes before " + of;
    if (address < start + a.bytes) return "byte " + std::to_string(address - start) + " of " + of;
    return std::to_string(address - start - a.bytes) + " bytes past the end of " + of;
  };
  const auto covers = [&](const Allocation& a) {
    const auto first = reinterpret_cast<std::uintptr_t>(a.mapping);
    return a.mapping != nullptr && address >= first && address < first + a.mapping_bytes;
  };
  for (const auto& [start, allocation] : allocations)
    if (covers(allocation)) return text(allocation, "");
  for (const Allocation& allocation : freed_)
    if (covers(allocation)) return text(allocation, "freed ");
  return {};
}

bool is_device_memory(const void* data, std::size_t bytes) {
  const Call call;
  const Allocation* const found = Machine::instance().find(data, bytes);
  return found != nullptr && found->kind == Allocation::Kind::kDevice;
}

std::optional<int> memory_device(const void* data) {
  const Call call;
  const Allocation* const found = Machine::instance().find(data, 0);
  return found != nullptr && found->kind == Allocation::Kind::kDevice ? std::optional<int>(found->device) : std::nullopt;
}

bool is_reachable(const void* data, std::size_t bytes) {
  const Call call;
  return Machine::instance().find(data, bytes) != nullptr;
}

void* allocate_device_memory(int device, std::size_t bytes) {
  const Call call;
  return Machine::instance().allocate(Allocation::Kind::kDevice, device, bytes);
}

bool free_device_memory(void* data) {
  const Call call;
  return Machine::instance().release(data, Allocation::Kind::kDevice);
}

}  // namespace trident::simulated

using namespace trident::simulated;

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return api_call("cudaMalloc", [&] {
    *data = nullptr;
    if (bytes == 0) return cudaSuccess;
    *data = Machine::instance().allocate(Allocation::Kind::kDevice, current_device(), bytes);
    return *data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaFree(void* data) {
  return api_call("cudaFree", [&] {
    return data == nullptr || Machine::instance().release(data, Allocation::Kind::kDevice) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return api_call("cudaHostAlloc", [&] {
    *data = Machine::instance().allocate(Allocation::Kind::kPinned, current_device(), bytes);
    return *data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaFreeHost(void* data) {
  return api_call("cudaFreeHost", [&] {
    return data == nullptr || Machine::instance().release(data, Allocation::Kind::kPinned) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned) {
  return api_call("cudaHostRegister", [&] {
    Machine& machine = Machine::instance();
    if (data == nullptr || bytes == 0) return cudaErrorInvalidValue;
    if (machine.find(data, 1) != nullptr || machine.find(static_cast<std::byte*>(data) + bytes - 1, 1) != nullptr)
      return cudaErrorHostMemoryAlreadyRegistered;
    machine.allocations[reinterpret_cast<std::uintptr_t>(data)] = {Allocation::Kind::kRegistered, current_device(), bytes,
                                                                   static_cast<std::byte*>(data), nullptr,          0};
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* data) {
  return api_call("cudaHostUnregister", [&] {
    return Machine::instance().release(data, Allocation::Kind::kRegistered) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return api_call("cudaMemGetInfo", [&] {
    const Machine& machine = Machine::instance();
    *total = machine.settings.total_bytes;
    *free = *total - std::min(*total, machine.used(current_device()));
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return api_call("cudaPointerGetAttributes", [&] {
    *attributes = {};
    attributes->device = -2;  // as the library says of memory it does not know
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->hostPointer = const_cast<void*>(data);
    const Allocation* const found = Machine::instance().find(data, 1);
    if (found == nullptr) return cudaSuccess;
    const bool device = found->kind == Allocation::Kind::kDevice;
    attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = found->device;
    attributes->devicePointer = const_cast<void*>(data);
    attributes->hostPointer = device ? nullptr : const_cast<void*>(data);
    return cudaSuccess;
  });
}
