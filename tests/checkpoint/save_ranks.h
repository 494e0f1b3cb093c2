// Saving all ranks of a layout, one after the other, and reading them back, as a run does, without its threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/shard_writer.h"
#include "tests/checkpoint/layout_ranks.h"

namespace trident::test {

enum class Staging : std::uint8_t { kLeast, kBetween, kWhole };

// Returns when nothing is in progress.
void wait_for(const ShardWriter& writer);

SavePlan plan_of(const LayoutRank& rank, int number, CheckpointContent content = CheckpointContent::kAll);
Buffer staging_for(const SavePlan& plan, Staging staging);

// A manifest of what the plans' files say, at a step.
Manifest manifest_of(const ModelConfig& model, std::int64_t step, DType weights,
                     CheckpointContent content = CheckpointContent::kAll);

// Writes and commits step `step` in `directory`. Every error is thrown as StorageError.
Manifest save_ranks(const std::string& directory, std::int64_t step, const ModelConfig& model, std::vector<LayoutRank>& ranks,
                    DType weights, Staging staging = Staging::kWhole, CheckpointContent content = CheckpointContent::kAll);

}  // namespace trident::test
