#include "device/cpu/team.h"

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "core/tsan_announce.h"

namespace trident {

std::int64_t team_size() { return omp_get_max_threads(); }

// The sanitizer does not see how OpenMP's threads wait for each other, so that it is told. It must not look at this function
// itself, whose variables reach the others by these ways.
#if defined(TRIDENT_TSAN)
__attribute__((no_sanitize("thread")))
#endif
void internal::run_on_team(std::int64_t tasks, void (*call)(const void*, std::int64_t, std::int64_t), const void* task) {
  const auto members = static_cast<int>(std::min(tasks, team_size()));
  if (members <= 1 || omp_in_parallel() != 0) {
    for (std::int64_t i = 0; i < tasks; ++i) call(task, i, 0);
    return;
  }
  char begun = 0, done = 0;
  announce_release(&begun);
#pragma omp parallel num_threads(members)
  {
    announce_acquire(&begun);
#pragma omp for schedule(dynamic, 1) nowait
    for (std::int64_t i = 0; i < tasks; ++i) call(task, i, omp_get_thread_num());
    announce_release(&done);
  }
  announce_acquire(&done);
}

}  // namespace trident
