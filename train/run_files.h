// What a run leaves in its directory besides metrics.jsonl: the resolved configuration and the plan.
#pragma once

#include <string>

#include "device/arena.h"
#include "train/run_plan.h"

namespace trident {

// Creates the directory and its parents, or none of them. Throws StorageError naming it.
void make_run_folder(const std::string& folder);

// config.resolved.json and plan.json: what was asked for, and what was decided and predicted. Whole files or none.
void write_config_file(const std::string& folder, const TrainConfig& config);
// `memory`: rank 0's arena, every named allocation.
void write_plan_file(const std::string& folder, const RunPlan& plan, const ArenaPlan& memory);

}  // namespace trident
