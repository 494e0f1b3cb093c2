#include "planner/predict/plan_advice.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/for_each_index.h"

namespace trident {
namespace {

struct Change {
  std::vector<std::string> settings;
  std::function<void(TrainConfig&)> apply;
};

Change both(const Change& a, const Change& b) {
  Change change{a.settings, [a, b](TrainConfig& config) { a.apply(config), b.apply(config); }};
  change.settings.insert(change.settings.end(), b.settings.begin(), b.settings.end());
  return change;
}

std::vector<Change> recompute_changes(const TrainConfig& config) {
  std::vector<Change> changes;
  for (const RecomputePolicy policy : {RecomputePolicy::kNone, RecomputePolicy::kSelective, RecomputePolicy::kFull}) {
    if (policy == config.recompute.policy) continue;
    changes.push_back(
        {{fmt::format("recompute.policy={}", to_string(policy))}, [policy](TrainConfig& c) { c.recompute.policy = policy; }});
  }
  return changes;
}

// The next larger and the next smaller divisor of what a replica has in a step.
std::vector<Change> micro_batch_changes(const TrainConfig& config, std::int64_t of_replica) {
  std::vector<Change> changes;
  std::vector<std::int64_t> sizes;
  std::int64_t size = config.batch.micro + 1;
  while (size <= of_replica && of_replica % size != 0) ++size;
  if (size <= of_replica) sizes.push_back(size);
  size = config.batch.micro - 1;
  while (size > 0 && of_replica % size != 0) --size;
  if (size > 0) sizes.push_back(size);
  for (const std::int64_t micro : sizes)
    changes.push_back({{fmt::format("batch.micro={}", micro)}, [micro](TrainConfig& c) { c.batch.micro = micro; }});
  return changes;
}

std::vector<Change> zero_changes(const TrainConfig& config) {
  std::vector<Change> changes;
  for (const ZeroPreset preset :
       {ZeroPreset::kDdp, ZeroPreset::kZero1, ZeroPreset::kZero2, ZeroPreset::kShardGradOp, ZeroPreset::kZero3}) {
    if (preset == config.parallel.zero) continue;
    changes.push_back(
        {{fmt::format("parallel.zero={}", to_string(preset))}, [preset](TrainConfig& c) { c.parallel.zero = preset; }});
  }
  return changes;
}

std::vector<Change> schedule_changes(const TrainConfig& config) {
  std::vector<Change> changes;
  for (const std::int64_t chunks : {2, 4, 8}) {
    if (config.parallel.pipeline == 1 || chunks == config.parallel.virtual_stages) continue;
    std::vector<std::string> settings{"parallel.schedule=interleaved", fmt::format("parallel.virtual_stages={}", chunks)};
    if (config.parallel.layers) settings.emplace_back("parallel.layers=null");  // they are of other stages
    changes.push_back({std::move(settings), [chunks](TrainConfig& c) {
                         c.parallel.schedule = ScheduleKind::kInterleaved;
                         c.parallel.virtual_stages = chunks;
                         c.parallel.layers.reset();
                       }});
  }
  if (config.parallel.tensor > 1 && !config.parallel.sequence_parallel)
    changes.push_back({{"parallel.sequence_parallel=true"}, [](TrainConfig& c) { c.parallel.sequence_parallel = true; }});
  return changes;
}

// Deterministic attention keeps the gradients of whole scores, which grow with the square of the sequence.
std::vector<Change> determinism_changes(const TrainConfig& config, bool fits) {
  if (fits || !config.cuda.deterministic) return {};
  return {{{"cuda.deterministic=false"}, [](TrainConfig& c) { c.cuda.deterministic = false; }}};
}

std::vector<Change> changes_of(const TrainConfig& config, std::int64_t of_replica, bool fits) {
  const std::vector<Change> recompute = recompute_changes(config), micro = micro_batch_changes(config, of_replica),
                            zero = zero_changes(config), schedule = schedule_changes(config),
                            determinism = determinism_changes(config, fits);
  std::vector<Change> all = recompute;
  for (const auto* list : {&micro, &zero, &schedule, &determinism}) all.insert(all.end(), list->begin(), list->end());
  for (const Change& a : recompute) {
    for (const Change& b : micro) all.push_back(both(a, b));
    if (fits) continue;
    for (const Change& b : zero) all.push_back(both(a, b));
  }
  return all;
}

}  // namespace

std::vector<PricedChange> priced_changes(const PlanHardware& hardware, const ClusterForecast& now) {
  constexpr int kThreads = 2;  // of a laptop
  const std::int64_t of_replica = now.plan.num_micro_batches * now.plan.config.batch.micro;
  const std::vector<Change> changes = changes_of(now.plan.config, of_replica, now.fits);
  std::vector<std::optional<PricedChange>> answers(changes.size());
  for_each_index(changes.size(), kThreads, [&](std::size_t i) {
    TrainConfig config = now.plan.config;
    changes[i].apply(config);
    try {
      validate(config);
      const ClusterForecast changed = plan_on(hardware, config, now.plan.world_size());
      answers[i] = {changes[i].settings, changed.seconds(), changed.needed_bytes(), changed.fits};
    } catch (const ConfigError&) {  // this model, batch or layout does not allow it
    }
  });
  std::vector<PricedChange> priced;
  for (std::optional<PricedChange>& answer : answers)
    if (answer) priced.push_back(std::move(*answer));
  return priced;
}

std::vector<PricedChange> advice_of(const ClusterForecast& now, std::vector<PricedChange> changes, std::size_t most) {
  const auto smaller = [](const PricedChange& a, const PricedChange& b) { return a.bytes < b.bytes; };
  const auto least = std::min_element(changes.begin(), changes.end(), smaller);
  if (!now.fits && least != changes.end() && !least->fits) {
    if (least->bytes >= now.needed_bytes()) return {};
    return {*least};
  }
  std::erase_if(changes, [&](const PricedChange& it) { return !it.fits || (now.fits && it.seconds > 0.995 * now.seconds()); });
  std::stable_sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) {
    return std::pair(a.seconds, a.settings.size()) < std::pair(b.seconds, b.settings.size());
  });
  if (changes.size() > most) changes.resize(most);
  return changes;
}

}  // namespace trident
