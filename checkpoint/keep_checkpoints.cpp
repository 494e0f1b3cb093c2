#include "checkpoint/keep_checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "core/check.h"
#include "core/file_io.h"

namespace trident {

std::vector<std::int64_t> steps_to_remove(std::vector<std::int64_t> steps, const KeepRules& rules) {
  if (rules.newest == 0) return {};
  std::ranges::sort(steps, std::ranges::greater());
  steps.erase(steps.begin(), steps.begin() + std::min<std::ptrdiff_t>(rules.newest, std::ssize(steps)));
  std::erase_if(steps, [&](std::int64_t step) { return (rules.every > 0 && step % rules.every == 0) || rules.best == step; });
  return steps;
}

Pruned prune_checkpoints(const std::string& directory, const KeepRules& rules, PruneMode mode) {
  Pruned pruned;
  std::optional<StorageError> fault;
  for (const CheckpointEntry& entry : list_checkpoints(directory)) {
    if (entry.parts.mark.empty() && entry.health == CheckpointHealth::kValid) pruned.stayed.push_back(entry.parts.step);
  }
  std::ranges::sort(pruned.stayed, std::ranges::greater());
  for (const std::int64_t step : steps_to_remove(pruned.stayed, rules)) {
    const std::string name = checkpoint_name(step), path = directory + "/" + name;
    std::error_code ignored;
    const bool is_loaded = !rules.loaded.empty() && std::filesystem::equivalent(path, rules.loaded, ignored);
    if (is_loaded || is_being_read(path)) {
      pruned.locked.push_back(step);
      continue;
    }
    try {
      if (mode == PruneMode::kRemove) remove_checkpoint_folder(directory, name);
    } catch (const StorageError& error) {  // another user's, perhaps: the others go all the same
      if (!fault) fault = error;
      continue;
    }
    pruned.removed.push_back(step);
    std::erase(pruned.stayed, step);
  }
  if (fault) throw *fault;
  return pruned;
}

void prepare_checkpoint_folder(const std::string& directory, std::int64_t step, const std::function<void(const std::string&)>& say) {
  create_folder(directory);
  remove_leftovers(directory);
  for (const std::int64_t other : checkpoint_steps(directory)) {
    if (other > step) say(fmt::format("{} is set aside as {}", checkpoint_name(other), set_checkpoint_aside(directory, other)));
  }
}

}  // namespace trident
