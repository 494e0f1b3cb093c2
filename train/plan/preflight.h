// Refusals before a run draws a weight or leaves a file: memory that is not there, folders that cannot be written.
#pragma once

#include <cstdint>
#include <string>

#include "train/plan/run_plan.h"

namespace trident {

// Ranks as threads of one process: more than this many are refused.
inline constexpr std::int64_t kMaxThreadRanks = 1024;
void check_thread_ranks(const TrainConfig& config);

// A model whose weights and optimizer state alone, shared out as well as can be, are larger than `machine_bytes`; of what
// `config` freezes the weights count. Before the plan, so that its size does not matter. ConfigError.
void check_model_fits(const ModelConfig& model, const TrainConfig& config, std::int64_t machine_bytes);

// Throws StorageError when run.dir is there but no folder, or it, or the nearest folder above it, may not be written. Creates
// nothing.
void check_run_folder(const std::string& folder);

}  // namespace trident
