#include "pipeline/schedule_grid.h"

#include <cmath>

#include "core/check.h"
#include "pipeline/schedule_simulator.h"

namespace trident {

std::string to_grid(const Schedule& schedule) {
  const ScheduleTimeline timeline = simulate(schedule, uniform_costs(1, 1, 1));
  const auto num_slots = static_cast<std::size_t>(std::lround(timeline.makespan));
  std::size_t width = 1;
  for (const auto& actions : schedule.ranks)
    for (const Action& a : actions) width = std::max(width, to_string(a).size());

  std::string grid;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    std::vector<std::string> cells(num_slots, ".");
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const auto first = static_cast<std::size_t>(std::lround(timeline.ranks[rank][i].start));
      const auto last = static_cast<std::size_t>(std::lround(timeline.ranks[rank][i].end));
      cells[first] = to_string(schedule.ranks[rank][i]);
      for (std::size_t slot = first + 1; slot < last; ++slot) cells[slot] = std::string(width, '-');
    }
    std::string row = fmt::format("rank {} |", rank);
    for (const std::string& cell : cells) row += fmt::format(" {:<{}}", cell, width);
    row.erase(row.find_last_not_of(' ') + 1);
    grid += row + '\n';
  }
  return grid;
}

}  // namespace trident
