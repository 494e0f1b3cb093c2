#include "tests/cuda/simulated/launched_kernels.h"

#include <map>
#include <mutex>

#include "tests/cuda/simulated/nccl.h"

namespace trident::simulated {

namespace {

struct Notes {
  std::mutex mutex;
  std::set<const void*> functions;
  std::map<int, std::set<const void*>> loaded;  // by device
  std::map<int, std::set<std::string>> in_time, late;  // likewise
};
Notes& notes() {
  static Notes it;
  return it;
}

}  // namespace

void note_loaded_kernel(int device, const void* function) {
  const std::lock_guard lock(notes().mutex);
  notes().loaded[device].insert(function);
}

std::set<const void*> loaded_kernels(int device) {
  const std::lock_guard lock(notes().mutex);
  return notes().loaded[device];
}

void note_kernel(const void* function) {
  const std::lock_guard lock(notes().mutex);
  notes().functions.insert(function);
}

namespace {

std::set<std::string> of_all_devices(const std::map<int, std::set<std::string>>& kernels) {
  std::set<std::string> all;
  for (const auto& [device, names] : kernels)
    for (const std::string& name : names) all.insert(std::to_string(device) + " " + name);
  return all;
}

}  // namespace

void note_library_kernel(int device, const std::string& kernel) {
  const bool connected = nccl_connected(device);
  const std::lock_guard lock(notes().mutex);
  if (notes().in_time[device].count(kernel) == 0) (connected ? notes().late : notes().in_time)[device].insert(kernel);
}

std::set<std::string> library_kernels() {
  const std::lock_guard lock(notes().mutex);
  return of_all_devices(notes().in_time);
}

std::set<std::string> late_library_kernels() {
  const std::lock_guard lock(notes().mutex);
  return of_all_devices(notes().late);
}

void reset_library_kernels() {
  const std::lock_guard lock(notes().mutex);
  notes().in_time.clear(), notes().late.clear();
}

std::set<const void*> launched_kernels() {
  const std::lock_guard lock(notes().mutex);
  return notes().functions;
}

}  // namespace trident::simulated
