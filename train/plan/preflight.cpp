#include "train/plan/preflight.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "core/number_text.h"
#include "model/config/model_stats.h"
#include "train/config/rank_count.h"

namespace trident {
namespace {


// Bytes per parameter: master weight and the update rule's state, what no layout of one machine can share out further.
double smallest_state(const TrainConfig& config) {
  return 4.0 * (1.0 + num_states(config.optimizer.type));
}

// The run folder, or what is there of the path to it.
std::filesystem::path nearest_existing(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(folder, error);
  while (!std::filesystem::exists(path, error) && path.has_parent_path() && path != path.parent_path()) path = path.parent_path();
  return path;
}

}  // namespace

void check_thread_ranks(const TrainConfig& config) {
  const ParallelConfig& p = config.parallel;
  const std::int64_t ranks = ranks_of(p);
  if (ranks <= kMaxThreadRanks) return;
  throw ConfigError(fmt::format(
      "parallel.data x parallel.pipeline x parallel.tensor = {} x {} x {} = {} ranks: as threads of one process at most "
      "{} can run; lower the degrees",
      p.data.ranks.value_or(1), p.pipeline, p.tensor, ranks, kMaxThreadRanks));
}

void check_model_fits(const ModelConfig& model, const TrainConfig& config, std::int64_t machine_bytes) {
  const double state = smallest_state(config), parameters = static_cast<double>(num_parameters(model)), bytes = state * parameters;
  if (bytes <= static_cast<double>(machine_bytes)) return;
  throw ConfigError(
      fmt::format("model: {} parameters need at least {} for weights and optimizer in any layout, this machine has {}; take a "
                  "model of at most {:.0f}M parameters, or a larger machine",
                  parameters_text(parameters), gigabytes_text(bytes), gigabytes_text(machine_bytes),
                  1e-6 * static_cast<double>(machine_bytes) / state));
}

void check_run_folder(const std::string& folder) {
  const std::filesystem::path there = nearest_existing(folder);
  std::error_code error;
  if (!std::filesystem::is_directory(there, error))
    throw StorageError(fmt::format("run.dir = {}: {} is not a folder; choose another path", folder, there.string()));
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    throw StorageError(fmt::format("run.dir = {}: {} cannot be written: {}; choose a folder that may be written", folder,
                                   there.string(), std::strerror(errno)),
                       errno);
}

}  // namespace trident
