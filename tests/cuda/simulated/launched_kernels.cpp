#include "tests/cuda/simulated/launched_kernels.h"

#include <map>
#include <mutex>

namespace trident::simulated {

namespace {

struct Notes {
  std::mutex mutex;
  std::set<const void*> functions;
  std::map<int, std::set<const void*>> loaded;  // by device
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

std::set<const void*> launched_kernels() {
  const std::lock_guard lock(notes().mutex);
  return notes().functions;
}

}  // namespace trident::simulated
