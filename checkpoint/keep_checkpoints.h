// Which checkpoints of a folder stay, and what a start does to those that it goes back behind.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trident {

struct KeepRules {
  std::int64_t newest = 0;  // so many; 0: all
  std::int64_t every = 0;   // also multiples of so many steps; 0: none
  std::optional<std::int64_t> best = {};  // also this step
  std::string loaded = {};  // also the folder that the run went on from
};

// Returns the steps whose checkpoints are removed. `steps`: in any order.
std::vector<std::int64_t> steps_to_remove(std::vector<std::int64_t> steps, const KeepRules& rules);

// Steps, the newest first.
struct Pruned {
  std::vector<std::int64_t> removed, stayed;
  std::vector<std::int64_t> locked;  // stayed because a reader has them locked, or because the run went on from them
};
enum class PruneMode : std::uint8_t { kRemove, kLook };  // kLook: removes nothing, and says what would go

// Removes them from `directory`, but for those that a reader has locked. Only checkpoints whose manifest is valid count and go: no
// damaged one takes the place of the last that is whole. StorageError, after all others were removed.
Pruned prune_checkpoints(const std::string& directory, const KeepRules& rules, PruneMode mode = PruneMode::kRemove);

// Before a run's first save: makes the folder, removes what killed saves left, and sets aside the checkpoints of steps above `step`
// (-1: all), whose numbers this run will write anew. Says what it set aside. StorageError.
void prepare_checkpoint_folder(const std::string& directory, std::int64_t step, const std::function<void(const std::string&)>& say);

}  // namespace trident
