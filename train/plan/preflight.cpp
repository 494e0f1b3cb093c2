#include "train/plan/preflight.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>

#include "core/number_text.h"
#include "model/config/hf_tensors.h"
#include "model/config/model_stats.h"
#include "train/config/rank_count.h"
#include "train/config/resolve_tuning.h"

namespace trident {
namespace {

// Parameters of a model with its adapters, and the bytes that no layout of one machine can share out further: master weight and the
// update rule's state of what trains, the weight alone of what is frozen.
std::pair<double, double> least_state(ModelConfig model, const TrainConfig& config) {
  model.tuning = resolve_tuning(config, model);
  double frozen = 0;
  if (model.tuning != nullptr)
    for (const HfTensor& tensor : hf_tensors(model))
      if (!model.tuning->trains(tensor.name))
        frozen += std::accumulate(tensor.shape.begin(), tensor.shape.end(), 1.0, std::multiplies<>());
  const double parameters = static_cast<double>(num_parameters(model) + adapter_parameters(model));
  const double weight = config.precision.compute == ComputeFormat::kFp32 ? 4 : 2;  // "auto" may come to bf16
  return {parameters, weight * frozen + 4.0 * (1.0 + num_states(config.optimizer.type)) * (parameters - frozen)};
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
      p.data.value_or(1), p.pipeline, p.tensor, ranks, kMaxThreadRanks));
}

void check_model_fits(const ModelConfig& model, const TrainConfig& config, std::int64_t machine_bytes) {
  const auto [parameters, bytes] = least_state(model, config);
  const auto there = static_cast<double>(machine_bytes);
  if (bytes <= there) return;
  throw ConfigError(
      fmt::format("model: {} parameters need at least {} for weights and optimizer in any layout, this machine has {}; take a "
                  "model of at most {} parameters, or a larger machine",
                  parameters_text(parameters), gigabytes_text(bytes), gigabytes_text(machine_bytes),
                  parameters_text(parameters * there / bytes)));
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
