// Trains a configuration on thread ranks over made-up tokens and keeps what tests compare: losses, gradient norms, every
// parameter's gradient of the first step and its final value, by tensor name and in the tensor's own order, whatever the layout.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/cuda/cuda_backend.h"
#include "train/plan/run_plan.h"
#include "train/run/rank_trainer.h"

namespace trident::testing {

using NamedTensors = std::map<std::string, std::vector<float>>;

struct LayoutRun {
  RunPlan plan;
  std::vector<double> losses, grad_norms;
  std::vector<bool> applied;
  std::vector<PairRewards> rewards;  // of steps with loss.type "dpo"
  std::vector<double> token_accuracies;  // of steps that have one
  NamedTensors initial;     // weights before step 1
  NamedTensors gradients;   // of step 1, reduced, as the optimizer sees them
  NamedTensors weights;     // f32 master weights after the last step
  NamedTensors frozen_before, frozen;  // weights in use of what does not train, before step 1 and after the last one
  std::array<double, kNumAxes> bytes_sent{};  // of the last step, summed over ranks
  std::vector<std::int64_t> planned_bytes, high_water;  // arena, by rank
  double eval_loss = 0;     // of two global batches after the last step, if asked for
  std::optional<double> eval_token_accuracy;
};

struct LayoutRunOptions {
  int steps = 3;
  bool evaluate = false;
  LoadSamples load = {};  // empty: random_tokens(vocabulary of the model)
  // Called with the rank's store when the gradients of step `step` (from 0) are reduced; may change them.
  std::function<void(const ParamStore& store, ParallelContext& context, int step)> on_gradients = {};
  // On devices of this backend's GPUs, which exchange by `transport`; not set: on CPUs.
  CudaBackend* cuda = nullptr;
  DeviceTransport transport = DeviceTransport::kThread;
  // The plan to run in place of the configuration's.
  std::function<RunPlan(RunPlan plan)> change_plan = {};
  // Called by every rank, at the same time as others: before the first step, and after the last one while all ranks still live.
  std::function<void(RankTrainer& trainer)> before_steps = {}, after_steps = {};
};

// Writes values over the masters of a rank on the CPU; elements for which `value` gives none stay.
void set_masters(RankTrainer& trainer,
                 const std::function<std::optional<float>(const std::string& tensor, std::int64_t index)>& value);

// Sample p holds T+1 tokens drawn from Philox under p.
LoadSamples random_tokens(std::int64_t vocabulary, std::int64_t sequence);

// `config`: JSON text as a user would write it ("data" and "run" may be left out); `settings`: --set arguments on top.
LayoutRun run_layout(const std::string& config, const std::vector<std::string>& settings = {},
                     const LayoutRunOptions& options = {});

// The configuration that the parity tests vary: a tiny Llama with grouped queries; fp32, global batch 8 of 16 tokens.
std::string tiny_llama_config();
std::string tiny_gpt2_config();

// Comparisons of docs/numerics.md. Return what is wrong, or "" if nothing is.
std::string compare_losses(const LayoutRun& run, const LayoutRun& reference);
std::string compare_gradients(const NamedTensors& gradients, const NamedTensors& reference);
// Bit equality of losses, norms, gradients and weights.
std::string compare_bits(const LayoutRun& a, const LayoutRun& b);

}  // namespace trident::testing
