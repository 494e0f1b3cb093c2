#include "planner/published/simulated_schedules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "core/check.h"
#include "pipeline/schedule/schedule_generators.h"
#include "planner/published/v_schedules.h"
#include "planner/published/weight_filling.h"

namespace trident {
namespace {

struct KindName {
  SimulatedKind kind;
  std::string_view name;
};
constexpr std::array<KindName, 10> kNames{{{SimulatedKind::kGpipe, "gpipe"},
                                           {SimulatedKind::k1f1b, "1f1b"},
                                           {SimulatedKind::kInterleaved, "interleaved"},
                                           {SimulatedKind::kZbH1, "zb-h1"},
                                           {SimulatedKind::kZbH2, "zb-h2"},
                                           {SimulatedKind::kZb1p, "zb-1p"},
                                           {SimulatedKind::kZb2p, "zb-2p"},
                                           {SimulatedKind::kZbV, "zb-v"},
                                           {SimulatedKind::kVHalf, "v-half"},
                                           {SimulatedKind::kVMin, "v-min"}}};

// `warm_up(r)` forwards on rank r, then input gradients and forwards in turn; the weight gradient of a micro-batch follows the
// input gradient of the one `lag(r)` behind it, or comes at the end. No weight gradients when lag(r) < 0.
template <class WarmUpOf, class LagOf>
Schedule one_by_one(int p, int m, WarmUpOf warm_up, LagOf lag) {
  Schedule schedule{p, 1, m, {}};
  for (int rank = 0; rank < p; ++rank) {
    auto& actions = schedule.ranks.emplace_back();
    int forward = 0, weight = 0;
    while (forward < std::min(m, warm_up(rank))) actions.push_back({ActionKind::kForward, rank, forward++});
    for (int input = 0; input < m; ++input) {
      actions.push_back({ActionKind::kBackwardInput, rank, input});
      if (lag(rank) >= 0 && input >= lag(rank)) actions.push_back({ActionKind::kBackwardWeight, rank, weight++});
      if (forward < m) actions.push_back({ActionKind::kForward, rank, forward++});
    }
    while (lag(rank) >= 0 && weight < m) actions.push_back({ActionKind::kBackwardWeight, rank, weight++});
  }
  return schedule;
}

// Keeps the shorter one.
void keep_best(std::optional<PlacedSchedule> found, const StageTimes& times, std::optional<PlacedSchedule>& best,
               double& best_span) {
  if (!found) return;
  const double span = simulate(*found, times).largest_span;
  if (best && span >= best_span) return;
  best = std::move(found);
  best_span = span;
}

constexpr std::array<double, 4> kThresholds{0.0, 0.5, 0.75, 1.0};

// `memory` in units of 1f1b's p micro-batches. More forwards before the first backward than 1f1b has help up to twice as many.
SimulatedSchedule searched(int p, int m, int memory, const StageTimes& times) {
  std::optional<PlacedSchedule> best;
  double best_span = 0;
  const int limit = memory * p;
  const auto none = [](int) { return -1; };
  for (const double slope : {0.0, 0.5, 0.75, 1.0, 1.25}) {
    for (const int extra : {0, 1}) {
      if (memory == 1 && (slope > 0 || extra > 0)) continue;
      const auto warm_up = [&](int rank) {
        return std::min(limit, p - rank + static_cast<int>(std::lround(slope * (p - 1 - rank))) + extra);
      };
      const PlacedSchedule order = usual_placement(one_by_one(p, m, warm_up, none));
      for (const double threshold : kThresholds)
        keep_best(fill_weight_gradients(order, times, {static_cast<double>(limit), kUnfusedWeightShare, threshold}), times, best,
                  best_span);
    }
  }
  TRIDENT_CHECK(best.has_value(), "p={} m={} memory={}", p, m, memory);
  return {std::move(*best), kUnfusedWeightShare};
}

SimulatedSchedule v_shaped(SimulatedKind kind, int p, int m, const StageTimes& times) {
  const VOrder order =
      kind == SimulatedKind::kZbV ? make_zb_v_order(p, m) : make_block_order(p, m, kind == SimulatedKind::kVHalf ? kVHalf : kVMin);
  std::optional<PlacedSchedule> best;
  double best_span = 0;
  for (const double threshold : kThresholds)
    keep_best(fill_weight_gradients(order.placed, times, {order.limit, 1, threshold}), times, best, best_span);
  TRIDENT_CHECK(best.has_value(), "{} p={} m={}", to_string(kind), p, m);
  return {std::move(*best), 1};
}

}  // namespace

std::optional<SimulatedKind> parse_simulated_kind(std::string_view text) {
  for (const std::string_view alias : {"1f1b-interleaved", "interleaved 1f1b", "interleaved-1f1b", "1f1b interleaved"})
    if (text == alias) return SimulatedKind::kInterleaved;
  for (const auto& [kind, name] : kNames)
    if (text == name) return kind;
  return std::nullopt;
}

std::string_view to_string(SimulatedKind kind) {
  for (const auto& [named, name] : kNames)
    if (named == kind) return name;
  return "?";
}

bool depends_on_times(SimulatedKind kind) {
  return kind == SimulatedKind::kZb1p || kind == SimulatedKind::kZb2p || is_v_shaped(kind);
}

bool splits_backwards(SimulatedKind kind) {
  return kind != SimulatedKind::kGpipe && kind != SimulatedKind::k1f1b && kind != SimulatedKind::kInterleaved;
}

bool is_v_shaped(SimulatedKind kind) {
  return kind == SimulatedKind::kZbV || kind == SimulatedKind::kVHalf || kind == SimulatedKind::kVMin;
}

SimulatedSchedule make_simulated_schedule(SimulatedKind kind, int p, int v, int m, const StageTimes& times) {
  TRIDENT_CHECK(p >= 1 && v >= 1 && m >= 1, "p={} v={} m={}", p, v, m);
  const auto trained = [&](ScheduleKind of) { return SimulatedSchedule{usual_placement(make_schedule(of, p, v, m)), 1}; };
  switch (kind) {
    case SimulatedKind::kGpipe: return trained(ScheduleKind::kGpipe);
    case SimulatedKind::k1f1b: return trained(ScheduleKind::k1f1b);
    case SimulatedKind::kInterleaved: return trained(ScheduleKind::kInterleaved);
    default: break;
  }
  const int chunks = is_v_shaped(kind) ? 2 : 1;
  if (v != chunks)
    throw ConfigError(
        fmt::format("schedule {}: {} virtual stages on each rank, where it has {}; ask for as many", to_string(kind), v, chunks));
  switch (kind) {
    case SimulatedKind::kZbH1:
      return {usual_placement(one_by_one(
                  p, m, [&](int r) { return p - r; }, [](int r) { return r; })),
              1};
    case SimulatedKind::kZbH2:
      return {usual_placement(one_by_one(
                  p, m, [&](int r) { return 2 * (p - r) - 1; }, [](int r) { return 2 * r; })),
              1};
    case SimulatedKind::kZb1p: return searched(p, m, 1, times);
    case SimulatedKind::kZb2p: return searched(p, m, 2, times);
    default: return v_shaped(kind, p, m, times);
  }
}

}  // namespace trident
