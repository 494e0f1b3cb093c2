// What a run reads and decides before its ranks have devices: the plan, the data, the tokens' lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/batch_loader.h"
#include "train/run_plan.h"

namespace trident {

// Read-only while the ranks run; ranks that are threads share it.
struct RunInputs {
  RunPlan plan;
  TokenSources sources;
  std::vector<std::int32_t> token_bytes;  // of every token's text; empty without a tokenizer
  std::optional<int> first_core;          // of rank 0 when ranks are pinned
};

// Everything that can be known without a rank; refuses what cannot be trained on. ConfigError, DataError, StorageError.
RunInputs prepare_run(const TrainConfig& config);

// Loaders of one rank.
BatchLoader train_loader(const RunInputs& inputs);
BatchLoader valid_loader(const RunInputs& inputs);

}  // namespace trident
