#include "core/clock.h"

#include <ctime>

namespace trident {
namespace {

double read_clock(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

double monotonic_seconds() { return read_clock(CLOCK_MONOTONIC); }
double thread_cpu_seconds() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace trident
