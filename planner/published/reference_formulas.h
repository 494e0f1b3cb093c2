// Formulas of papers and of other tools' estimators, each as its source has it: what such an estimator prints for a model, right or
// wrong. They answer cases that ask for exactly that and tests; no prediction uses them. What Trident itself
// takes is found by dry runs.
//
// Letters: s sequence, b micro-batch, h hidden, a heads, k key/value heads, f feed-forward width, L layers, V vocabulary; t, p, v,
// d tensor, pipeline, virtual stages per rank, data. Bytes and counts of one rank as doubles: exact up to 2^53, and where a formula
// divides, not whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trident {

// 12 L h^2 (1 + 13/(12h) + (V+s)/(12 L h)): Narayanan et al. 2021 (arXiv 2104.04473), no final norm.
double closed_form_parameters(double layers, double hidden, double vocab, double sequence);

// Model states per parameter: `whole` bytes on every rank and `sharded` bytes over d.
struct StateBytes {
  double whole = 0;
  double sharded = 0;
};
double state_bytes(const StateBytes& per_parameter, double params, double data);
// ddp-16, megatron-18, megatron-distopt, zero1, zero2, zero3, fp32-adam, zero3-fp32-everything, bf16-pure-adam, sgd-fp32.
std::optional<StateBytes> parse_state_convention(std::string_view name);
// Rajbhandari et al. 2020, Table 1. Stage 1 shards the optimizer, 2 also gradients, 3 also parameters; 0 nothing. Bytes per
// parameter.
StateBytes zero_state_bytes(int stage, double param_bytes, double grad_bytes, double optim_bytes);

// fp16 weights with fp32 master weights and two moments: what a checkpoint holds of a parameter.
inline constexpr double kCheckpointBytesPerParameter = 14;

// Activations of a GPT layer with 16-bit activations, unfused attention, GeLU MLP of 4h and dropout: Korthikanti et al. 2022 (arXiv
// 2205.05198), Table 2.
enum class ActivationMode : std::uint8_t {
  kSerial,             // none_serial: s b h (34 + 5 a s/h)
  kTensor,             // tp: s b h (10 + 24/t + 5 a s/(h t))
  kSequence,           // tp_sp: s b h (34/t + 5 a s/(h t))
  kTensorSelective,    // tp_selective: s b h (10 + 24/t)
  kSequenceSelective,  // tp_sp_selective: s b h 34/t
  kFull,               // full_stored_whole: 2 s b h
  kFullSharded,        // full_sharded_by_sp: 2 s b h/t
};
std::optional<ActivationMode> parse_activation_mode(std::string_view name);
struct GptLayer {
  double sequence = 0, micro_batch = 0, hidden = 0, heads = 0, tensor = 1;
};
double layer_activation_bytes(ActivationMode mode, const GptLayer& layer);
// 1 + (p-1)/(p v) for v > 1, else 1: how much more the first stage holds when stages interleave.
double interleaving_factor(double pipeline, double virtual_stages);
// Counts the first stage's layers: it holds p micro-batches of L/p layers.
double first_stage_activation_bytes(ActivationMode mode, const GptLayer& layer, double layers, double pipeline,
                                    double virtual_stages);
// 18 bytes of 12 L h^2/(t p) parameters.
double gpt_state_bytes(double layers, double hidden, double tensor, double pipeline);

// DeepSpeed's memory estimators (its documentation, "Memory Requirements"). Bytes per GPU and per node.
enum class Offload : std::uint8_t { kNone, kOptimizer, kOptimizerAndParameters };
struct DeepSpeedQuestion {
  int stage = 2;                     // 2 or 3
  Offload offload = Offload::kNone;  // parameters: stage 3 alone
  bool zero_init = true;             // stage 3: weights are sharded while they are made
  double params = 0, largest_layer_params = 0, nodes = 1, gpus_per_node = 1;
};
struct DeepSpeedEstimate {
  double gpu_bytes = 0, cpu_bytes = 0;
};
DeepSpeedEstimate deepspeed_estimate(const DeepSpeedQuestion& question);

// Megatron-LM's report of theoretical memory for its most loaded rank (megatron/training/theoretical_memory_usage.py as of 2025):
// GeLU-shaped activations whatever the layer, 5 % more where sequences are not sharded.
struct MegatronQuestion {
  double layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, padded_vocab = 0, sequence = 0;
  bool swiglu = false, layer_norm = false, tied = false;
  double tensor = 1, pipeline = 1, data = 1;
  std::optional<double> virtual_stages = {};  // given: interleaved
  double micro_batch = 1, micro_batches = 1;
  bool distributed_optimizer = false, sequence_parallel = false;
};
struct MegatronEstimate {
  double weight_optimizer_bytes = 0, activation_bytes = 0;
};
MegatronEstimate megatron_estimate(const MegatronQuestion& question);

// Counts one micro-batch's logits on a rank: s b V `bytes`/t.
double logits_bytes(double sequence, double micro_batch, double vocab, double tensor, double bytes);

}  // namespace trident
