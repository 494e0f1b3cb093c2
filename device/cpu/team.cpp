#include "device/cpu/team.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "core/tsan_announce.h"

namespace trident {

namespace {

thread_local int team_core = -1;  // of the first member, where the team has cores of its own
thread_local int own_core = -1;   // where this thread stays

// The first member keeps all the rank's cores, which the threads that it begins inherit: those that save, for instance.
// The library may end a member and begin another, so that each looks to it whenever it works.
void stay_on(int core) {
  if (core < 0 || core == own_core) return;
  own_core = core;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<std::size_t>(core), &only);
  sched_setaffinity(0, sizeof only, &only);
}

}  // namespace

std::int64_t team_size() { return omp_get_max_threads(); }

void make_team(std::int64_t size, std::optional<int> first_core) {
  omp_set_num_threads(static_cast<int>(size));  // of this thread only; never guessed from the machine
  team_core = first_core.value_or(-1);
  if (first_core) on_team(size, [](std::int64_t, std::int64_t) {});
}

// The sanitizer does not see how OpenMP's threads wait for each other, so that it is told. It must not look at this function
// itself, whose variables reach the others by these ways.
#if defined(TRIDENT_TSAN)
__attribute__((no_sanitize("thread")))
#endif
void internal::run_on_team(std::int64_t tasks, void (*call)(const void*, std::int64_t, std::int64_t), const void* task) {
  // Always the whole team: of one that shrinks the library ends the threads that are left over.
  const auto members = static_cast<int>(team_size());
  if (std::min<std::int64_t>(tasks, members) <= 1 || omp_in_parallel() != 0) {
    for (std::int64_t i = 0; i < tasks; ++i) call(task, i, 0);
    return;
  }
  char begun = 0, done = 0;
  announce_release(&begun);
  const int first_core = team_core;
#pragma omp parallel num_threads(members)
  {
    announce_acquire(&begun);
    if (first_core >= 0 && omp_get_thread_num() > 0) stay_on(first_core + omp_get_thread_num());
#pragma omp for schedule(dynamic, 1) nowait
    for (std::int64_t i = 0; i < tasks; ++i) call(task, i, omp_get_thread_num());
    announce_release(&done);
  }
  announce_acquire(&done);
}

}  // namespace trident
