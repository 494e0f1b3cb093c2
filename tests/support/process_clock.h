// CPU seconds of this process, all of its threads together.
#pragma once

#include <ctime>

namespace trident::testing {

inline double process_cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace trident::testing
