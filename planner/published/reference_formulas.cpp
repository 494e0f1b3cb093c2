#include "planner/published/reference_formulas.h"

#include <algorithm>
#include <array>

namespace trident {
namespace {

struct Convention {
  std::string_view name;
  StateBytes bytes;
};
// Weights, gradients, optimizer in this order.
constexpr std::array<Convention, 10> kConventions{{
    {"ddp-16", {2 + 2 + 12, 0}},
    {"megatron-18", {2 + 4 + 12, 0}},
    {"megatron-distopt", {2 + 4, 12}},
    {"zero1", {2 + 2, 12}},
    {"zero2", {2, 2 + 12}},
    {"zero3", {0, 2 + 2 + 12}},
    {"fp32-adam", {4 + 4 + 8, 0}},
    {"zero3-fp32-everything", {0, 4 + 4 + 8}},
    {"bf16-pure-adam", {2 + 2 + 4, 0}},
    {"sgd-fp32", {4 + 4, 0}},
}};

struct ModeName {
  std::string_view name;
  ActivationMode mode;
};
constexpr std::array<ModeName, 7> kModes{{{"none_serial", ActivationMode::kSerial},
                                          {"tp", ActivationMode::kTensor},
                                          {"tp_sp", ActivationMode::kSequence},
                                          {"tp_selective", ActivationMode::kTensorSelective},
                                          {"tp_sp_selective", ActivationMode::kSequenceSelective},
                                          {"full_stored_whole", ActivationMode::kFull},
                                          {"full_sharded_by_sp", ActivationMode::kFullSharded}}};

double megatron_state_bytes(const MegatronQuestion& q) {
  const double h = q.hidden, norm = q.layer_norm ? 2 : 1, gate = q.swiglu ? 1.5 : 1;
  const double matrices = q.layers * (2 * h * h * (1 + q.kv_heads / q.heads) + 2 * h * q.ffn * gate);
  const double norms = (2 * q.layers + 1) * norm * h;  // on every tensor rank whole
  const double embedding = h * q.padded_vocab;
  double params = (matrices / q.pipeline + embedding) / q.tensor + norms / q.pipeline;
  if (!q.tied && q.pipeline == 1) params += embedding / q.tensor;
  return params * (q.distributed_optimizer ? 6 + 12 / q.data : 18);
}

double megatron_activation_bytes(const MegatronQuestion& q) {
  const double tokens = q.sequence * q.micro_batch, elements = tokens * q.hidden, t = q.tensor, p = q.pipeline;
  const double layer = elements * (q.sequence_parallel ? 18 + 4 * q.ffn / q.hidden : 10 + 24 / t);
  double bytes = layer * q.layers + 8 * tokens * p + elements * p;  // the embedding's input and its dropout
  if (q.virtual_stages)
    bytes *= 1 + (p - 1) / (p * *q.virtual_stages);
  else if (p > 1)
    bytes *= std::min(1.0, q.micro_batches / p);
  if (q.sequence_parallel) return (p == 1 ? bytes + elements * 4 * (1 + q.padded_vocab / q.hidden) : bytes) / t;
  return 1.05 * (p == 1 ? bytes + 2 * (tokens * q.padded_vocab / t + elements) : bytes);
}

}  // namespace

double closed_form_parameters(double L, double h, double V, double s) { return 12 * L * h * h + 13 * L * h + (V + s) * h; }

double state_bytes(const StateBytes& per_parameter, double params, double data) {
  return params * per_parameter.whole + params * per_parameter.sharded / data;
}

std::optional<StateBytes> parse_state_convention(std::string_view name) {
  for (const Convention& convention : kConventions)
    if (convention.name == name) return convention.bytes;
  return std::nullopt;
}

StateBytes zero_state_bytes(int stage, double param_bytes, double grad_bytes, double optim_bytes) {
  StateBytes bytes;
  (stage >= 3 ? bytes.sharded : bytes.whole) += param_bytes;
  (stage >= 2 ? bytes.sharded : bytes.whole) += grad_bytes;
  (stage >= 1 ? bytes.sharded : bytes.whole) += optim_bytes;
  return bytes;
}

std::optional<ActivationMode> parse_activation_mode(std::string_view name) {
  for (const ModeName& mode : kModes)
    if (mode.name == name) return mode.mode;
  return std::nullopt;
}

double layer_activation_bytes(ActivationMode mode, const GptLayer& layer) {
  const double elements = layer.sequence * layer.micro_batch * layer.hidden, t = layer.tensor;
  const double scores = 5 * layer.heads * layer.sequence * layer.sequence * layer.micro_batch;
  switch (mode) {
    case ActivationMode::kSerial: return 34 * elements + scores;
    case ActivationMode::kTensor: return 10 * elements + 24 * elements / t + scores / t;
    case ActivationMode::kSequence: return 34 * elements / t + scores / t;
    case ActivationMode::kTensorSelective: return 10 * elements + 24 * elements / t;
    case ActivationMode::kSequenceSelective: return 34 * elements / t;
    case ActivationMode::kFull: return 2 * elements;
    case ActivationMode::kFullSharded: return 2 * elements / t;
  }
  return 0;
}

double interleaving_factor(double p, double v) { return v > 1 ? 1 + (p - 1) / (p * v) : 1; }

double first_stage_activation_bytes(ActivationMode mode, const GptLayer& layer, double layers, double p, double v) {
  return layer_activation_bytes(mode, layer) * layers * interleaving_factor(p, v);
}

double gpt_state_bytes(double layers, double hidden, double tensor, double pipeline) {
  return 18 * 12 * layers * hidden * hidden / (tensor * pipeline);
}

DeepSpeedEstimate deepspeed_estimate(const DeepSpeedQuestion& q) {
  constexpr double kBuffers = 1.5;  // its factor for further buffers of the host
  const double n = q.gpus_per_node, gpus = q.nodes * n;
  if (q.stage == 2) {
    if (q.offload != Offload::kNone) return {2 * q.params, q.params * std::max(4 * gpus, 16.0) * kBuffers};
    return {4 * q.params + 16 * q.params / gpus, q.params * 4 * n * kBuffers};
  }
  const double layer = 4 * q.largest_layer_params;
  // The host holds the weights of all its processes while they are made, unless they are sharded then, too.
  switch (q.offload) {
    case Offload::kNone:
      return {layer + 18 * q.params / gpus, (q.zero_init ? q.largest_layer_params : q.params) * 4 * n * kBuffers};
    case Offload::kOptimizer:
      return {layer + 2 * q.params / gpus, q.params * (q.zero_init ? 16 / q.nodes : std::max(4 * n, 16 / q.nodes)) * kBuffers};
    case Offload::kOptimizerAndParameters:
      return {layer, q.params * (q.zero_init ? 18 / q.nodes : std::max(4 * n, 18 / q.nodes)) * kBuffers};
  }
  return {};
}

MegatronEstimate megatron_estimate(const MegatronQuestion& question) {
  return {megatron_state_bytes(question), megatron_activation_bytes(question)};
}

double logits_bytes(double s, double b, double V, double t, double bytes) { return s * b * V * bytes / t; }

}  // namespace trident
