#include "device/cpu/team.h"

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace trident {

std::int64_t team_size() { return omp_get_max_threads(); }

void internal::run_on_team(std::int64_t tasks, void (*call)(const void*, std::int64_t, std::int64_t), const void* task) {
  const auto members = static_cast<int>(std::min(tasks, team_size()));
  if (members <= 1) {
    for (std::int64_t i = 0; i < tasks; ++i) call(task, i, 0);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(members)
  for (std::int64_t i = 0; i < tasks; ++i) call(task, i, omp_get_thread_num());
}

}  // namespace trident
