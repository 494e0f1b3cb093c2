#include "train/preflight.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "model/model_stats.h"

namespace trident {
namespace {

std::string gigabytes(double bytes) { return fmt::format("{:.1f} GB", 1e-9 * bytes); }

// Master weight and two moments of every parameter: what no layout of one machine can share out further.
constexpr double kSmallestState = 12;  // bytes per parameter

double model_state(const RunPlan& plan, const ZeroPolicy& policy) {
  const double replicas = static_cast<double>(plan.world_size() / plan.grid.degrees().pipeline);
  double bytes = 0;
  for (int pp = 0; pp < plan.grid.degrees().pipeline; ++pp)
    bytes += replicas * static_cast<double>(zero_cost(plan, policy, pp).memory);
  return bytes;
}

// Block inputs of one micro-batch, and the ids of all.
double smallest_activations(const RunPlan& plan) {
  const BatchConfig& batch = plan.config.batch;
  const double replicas = static_cast<double>(plan.grid.degrees().data);
  const double copies = plan.tensor_layout.shards_sequence() ? 1 : static_cast<double>(plan.tensor_layout.degree);
  const double tokens = static_cast<double>(batch.micro) * static_cast<double>(batch.sequence);
  const double blocks = static_cast<double>(plan.model.layers * plan.model.hidden * size_of(plan.compute));
  return replicas * copies * tokens * blocks +
         2.0 * tokens * plan.num_micro_batches * replicas * static_cast<double>(size_of(DType::kI32));
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
  const std::int64_t data = p.data.ranks.value_or(1), ranks = data * p.pipeline * p.tensor;  // each at most 2^16
  if (ranks <= kMaxThreadRanks) return;
  throw ConfigError(fmt::format(
      "parallel.data x parallel.pipeline x parallel.tensor = {} x {} x {} = {} ranks: as threads of one process at most "
      "{} can run; lower the degrees",
      data, p.pipeline, p.tensor, ranks, kMaxThreadRanks));
}

void check_model_fits(const ModelConfig& model, std::int64_t machine_bytes) {
  const double parameters = static_cast<double>(num_parameters(model)), bytes = kSmallestState * parameters;
  if (bytes <= static_cast<double>(machine_bytes)) return;
  throw ConfigError(
      fmt::format("model: {} parameters need at least {} for weights and optimizer in any layout, this machine has {}; take a "
                  "model of at most {:.0f}M parameters, or a larger machine",
                  parameters < 1e9 ? fmt::format("{:.1f}M", 1e-6 * parameters) : fmt::format("{:.1f}B", 1e-9 * parameters), gigabytes(bytes), gigabytes(static_cast<double>(machine_bytes)),
                  1e-6 * static_cast<double>(machine_bytes) / kSmallestState));
}

void check_memory(const RunPlan& plan, std::int64_t machine_bytes) {
  const double state = model_state(plan, plan.zero), activations = smallest_activations(plan),
               there = static_cast<double>(machine_bytes);
  const double world = static_cast<double>(plan.world_size());
  if (state > there) {
    throw ConfigError(fmt::format(
        "parallel.zero = {}: parameters, gradients and optimizer of {} ranks need {} ({} per rank), this machine has {}; {}",
        to_string(plan.zero.preset), plan.world_size(), gigabytes(state), gigabytes(state / world), gigabytes(there),
        what_state_fits(plan, state, there)));
  }
  if (state + activations <= there) return;
  const BatchConfig& batch = plan.config.batch;
  throw ConfigError(fmt::format(
      "batch.micro = {}, batch.sequence = {}, batch.global = {}: {} ranks need more than {} ({} per rank), {} of it for "
      "activations, this machine has {}; lower them",
      batch.micro, batch.sequence, batch.global, plan.world_size(), gigabytes(state + activations),
      gigabytes((state + activations) / world), gigabytes(activations), gigabytes(there)));
}

std::string what_state_fits(const RunPlan& plan, double state, double there) {
  if (plan.step_spec.data_parallel > 1) {
    const double now = model_state(plan, plan.zero);
    for (const ZeroPreset preset : {ZeroPreset::kZero1, ZeroPreset::kZero2, ZeroPreset::kShardGradOp, ZeroPreset::kZero3}) {
      const double bytes = state * model_state(plan, policy_of(preset)) / now;
      if (bytes <= there && bytes < state) return fmt::format("parallel.zero = {} needs {}", to_string(preset), gigabytes(bytes));
    }
  }
  return fmt::format("about {:.0f}M parameters of this layout would fit", 1e-6 * static_cast<double>(num_parameters(plan.model)) * there / state);
}

void check_run_folder(const std::string& folder) {
  const std::filesystem::path there = nearest_existing(folder);
  std::error_code error;
  if (!std::filesystem::is_directory(there, error))
    throw StorageError(fmt::format("run.dir = {}: {} is not a folder; choose another path", folder, there.string()));
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    throw StorageError(fmt::format("run.dir = {}: {} cannot be written: {}; choose a folder that may be written", folder,
                                   there.string(), std::strerror(errno)));
}

}  // namespace trident
