#include "pipeline/schedule/schedule_generators.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace trident {
namespace {

// Megatron's order of virtual micro-batches, as pairs of chunk and micro-batch: groups of p micro-batches; a group passes chunk 0,
// then chunk 1, ...
std::vector<std::pair<int, int>> chunk_turns(int num_ranks, int num_chunks, int num_micro_batches) {
  std::vector<std::pair<int, int>> turns;
  for (int first = 0; first < num_micro_batches; first += num_ranks)
    for (int chunk = 0; chunk < num_chunks; ++chunk)
      for (int mb = first; mb < std::min(first + num_ranks, num_micro_batches); ++mb) turns.emplace_back(chunk, mb);
  return turns;
}

// `warm_up` forwards, then one forward and one backward in turn, then the remaining backwards.
std::vector<Action> one_forward_one_backward(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                                             std::size_t warm_up) {
  const auto steady = static_cast<std::ptrdiff_t>(std::min(warm_up, forwards.size()));
  std::vector<Action> actions(forwards.begin(), forwards.begin() + steady);
  auto backward = backwards.begin();
  for (auto forward = forwards.begin() + steady; forward != forwards.end(); ++forward) {
    actions.push_back(*forward);
    if (backward != backwards.end()) actions.push_back(*backward++);
  }
  actions.insert(actions.end(), backward, backwards.end());
  return actions;
}

enum class Passes { kForward, kForwardAndBackward };

// The one generator behind all: schedules differ in their warm-up only. The backwards take the chunks in mirrored order.
template <class WarmUpOf>
Schedule generate(int p, int v, int m, Passes passes, WarmUpOf warm_up_of) {
  TRIDENT_CHECK(p >= 1 && v >= 1 && m >= 1, "p={} v={} m={}", p, v, m);
  Schedule schedule{p, v, m, {}};
  const auto turns = chunk_turns(p, v, m);
  for (int rank = 0; rank < p; ++rank) {
    std::vector<Action> forwards, backwards;
    for (const auto& [chunk, mb] : turns) {
      forwards.push_back({ActionKind::kForward, chunk * p + rank, mb});
      if (passes == Passes::kForwardAndBackward) backwards.push_back({ActionKind::kBackward, (v - 1 - chunk) * p + rank, mb});
    }
    schedule.ranks.push_back(one_forward_one_backward(forwards, backwards, static_cast<std::size_t>(warm_up_of(rank))));
  }
  return schedule;
}

}  // namespace

Schedule make_gpipe(int p, int m) {
  return generate(p, 1, m, Passes::kForwardAndBackward, [&](int) { return m; });
}

Schedule make_1f1b(int p, int m) {
  return generate(p, 1, m, Passes::kForwardAndBackward, [&](int rank) { return p - rank - 1; });
}

Schedule make_interleaved(int p, int v, int m) {
  if (m % p != 0) {
    const int below = m / p * p, above = below + p;
    const int nearest = below > 0 && m - below <= above - m ? below : above;
    throw ConfigError(fmt::format(
        "batch.global gives {} micro-batches per data-parallel rank and step: the interleaved schedule (parallel.virtual_stages = "
        "{}) needs a multiple of parallel.pipeline = {}; the nearest is {} micro-batches, and --set parallel.schedule=1f1b --set "
        "parallel.virtual_stages=1 takes any number", m, v, p, nearest));
  }
  return generate(p, v, m, Passes::kForwardAndBackward, [&](int rank) { return 2 * (p - rank - 1) + (v - 1) * p; });
}

Schedule make_forward_only(int p, int v, int m) {
  return generate(p, v, m, Passes::kForward, [&](int) { return m * v; });
}

Schedule make_schedule(ScheduleKind kind, int p, int v, int m) {
  if (kind != ScheduleKind::kInterleaved && v != 1)
    throw ConfigError(fmt::format("parallel.virtual_stages = {}: schedule {} has one stage per rank; set it to 1, or set "
                                  "parallel.schedule to interleaved", v, to_string(kind)));
  switch (kind) {
    case ScheduleKind::kGpipe: return make_gpipe(p, m);
    case ScheduleKind::k1f1b: return make_1f1b(p, m);
    case ScheduleKind::kInterleaved: return make_interleaved(p, v, m);
  }
  throw InternalError(fmt::format("schedule {} has no generator; add it to make_schedule", static_cast<int>(kind)));
}

}  // namespace trident
