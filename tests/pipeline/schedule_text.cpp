#include "tests/pipeline/schedule_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/check.h"
#include "pipeline/schedule/schedule_simulator.h"

namespace trident {
namespace {

constexpr std::string_view kKindLetters = "FBIW";  // in the order of ActionKind

// Takes a non-negative decimal number off the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<Action> parse_action(std::string_view text) {
  const auto stage = take_number(text);
  if (!stage || text.empty()) return std::nullopt;
  const std::size_t kind = kKindLetters.find(text.front());
  if (kind == std::string_view::npos) return std::nullopt;
  text.remove_prefix(1);
  const auto micro_batch = take_number(text);
  if (!micro_batch || !text.empty()) return std::nullopt;
  return Action{static_cast<ActionKind>(kind), *stage, *micro_batch};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// "p=2 v=1 m=4"
Schedule parse_header(std::string_view line) {
  Schedule schedule;
  const auto fields = split(line, ' ');
  const std::array<std::pair<std::string_view, int*>, 3> expected = {
      {{"p=", &schedule.num_ranks}, {"v=", &schedule.num_chunks}, {"m=", &schedule.num_micro_batches}}};
  bool ok = fields.size() == expected.size();
  for (std::size_t i = 0; ok && i < expected.size(); ++i) {
    std::string_view field = fields[i];
    ok = field.starts_with(expected[i].first);
    if (!ok) break;
    field.remove_prefix(2);
    const auto value = take_number(field);
    ok = value && *value >= 1 && field.empty();
    if (ok) *expected[i].second = *value;
  }
  if (!ok) throw ConfigError(fmt::format("schedule, first line = '{}': expected 'p=2 v=1 m=4', each at least 1", line));
  return schedule;
}

}  // namespace

Schedule parse_schedule(std::string_view text) {
  const auto lines = split(text, '\n');
  Schedule schedule = parse_header(lines.empty() ? std::string_view{} : lines.front());
  if (static_cast<int>(lines.size()) != schedule.num_ranks + 1)
    throw ConfigError(fmt::format("schedule: {} lines of actions for p={}; one line per rank is needed", lines.size() - 1,
                                  schedule.num_ranks));
  for (int rank = 0; rank < schedule.num_ranks; ++rank) {
    auto& actions = schedule.ranks.emplace_back();
    for (const std::string_view word : split(lines[static_cast<std::size_t>(rank) + 1], ' ')) {
      const auto action = parse_action(word);
      if (!action)
        throw ConfigError(fmt::format("schedule, rank {}, column {} = '{}': expected <virtual stage><F|B|I|W><micro-batch>, as in "
                                      "0F2", rank, actions.size(), word));
      actions.push_back(*action);
    }
  }
  return schedule;
}

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
