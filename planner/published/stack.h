// A stack says, as data, what a training system does beyond the arithmetic: which operations it fuses, what it keeps for the
// backward pass, in which types gradients live and travel, what it overlaps, how fast its host issues kernels.
//
// One JSON file a stack (configs/stacks/*.json), every number with its source. Pricing reads the table; it never asks which
// system it is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "planner/published/row_words.h"

namespace trident {

// Bytes that row kernels move, per element, forward and backward together with the sums for biases.
struct RowTraffic {
  double forward = 0;
  double backward = 0;
};

// The system's own default runs where a table does not say.
struct StackDefaults {
  Recompute recompute = Recompute::kNone;
  ZeroWords zero;
  std::string attention;
  bool fused_norm = false;
  bool offloads = false;  // before a block is recomputed in full its tensors move to the host, where NVLink leads there
  bool reports_device_memory = false;  // memory that its tables print is what the driver counts; false: the peak of its allocator
};

struct TrainingStack {
  std::string name;
  std::vector<std::string> frameworks;  // names in published tables: small letters and underscores
  int first_year = 0;
  int last_year = 9999;
  int gpt_scores_until = 0;  // up to this year GPT's block kept its scores in memory, by default

  double issue_s = 0;            // host time per kernel
  double block_kernels_forward = 0;
  double block_kernels_backward = 0;
  double plain_norm_kernels = 0;  // of one norm that is not fused, both passes
  double checkpoint_s = 0;       // time per recomputed block in which the device waits: random-number state is saved and restored
  double micro_batch_s = 0;      // host time per micro-batch and virtual stage beside the blocks
  double step_s = 0;             // fixed time per step

  RowTraffic norm;        // per hidden element and norm, one kernel
  RowTraffic plain_norm;  // likewise, RMSNorm as a chain of framework operations
  RowTraffic activation;  // per feed-forward element, one branch
  RowTraffic gated;       // per feed-forward element, two branches
  RowTraffic residual;    // per hidden element: bias, dropout, both residual sums
  RowTraffic copies;      // per query, key and value element: layout changes around attention
  RowTraffic rope;        // per query and key element
  RowTraffic logits;      // per logit: conversion, softmax, loss
  double saved_gated_bytes = 0;       // kept per feed-forward element of a gated activation
  double saved_plain_norm_bytes = 0;  // kept per hidden element of a norm that is not fused, beyond its input and output
  double logit_bytes = 0;             // peak per logit
  double dearest_logit_bytes = 0;     // the most per logit of the whole vocabulary, under a numbered ZeRO stage; 0: as without
  bool dropout = false;               // of models with GPT's block
  bool bias = false;

  double gradient_bytes_fp16 = 0;  // a parameter's gradient between micro-batches
  double gradient_bytes_bf16 = 0;
  double gradient_bytes_zero = 0;  // the same under a numbered ZeRO stage
  double optimizer_traffic = 0;    // bytes moved per parameter that a rank updates
  double gradient_traffic = 0;     // bytes moved per gradient element of a rank: norm, scaling, clearing
  double wire_bytes = 0;           // a gradient element on the wire; 0: as it is kept
  bool overlap_reduce = false;     // gradient reduction beside the last backward
  bool overlap_gather = false;     // parameter gather beside the next forward
  bool stages_keep_gathered =
      false;  // sharded parameters of pipeline stages are gathered and reduced once a step, not per micro-batch
  double sharded_network_share = 1;  // of the network's rate, what gathers and reductions of sharded parameters reach
  bool gather_ahead = true;        // sharded parameters: a unit is gathered beside the backward of the one before it in that order
  bool sequence_parallel = false;  // with tensor parallelism, where a row does not say
  bool split_messages = false;     // each tensor-parallel rank sends its part, and they gather it on the other side
  bool overlap_messages = false;   // pipeline messages beside compute
  double hidden_tp_forward = 0;    // part of the tensor-parallel traffic that runs behind GEMMs
  double hidden_tp_backward = 0;
  double allocator_slack = 0;      // reserved over allocated, a fraction
  bool narrow_inputs = false;      // inputs of products in fp8 and fp4 are kept in 8 bits
  bool fused_scores = false;       // of scores in memory, scale, mask, softmax and dropout are one kernel, whatever a row names
  StackDefaults when_not_said;
};

// Throws ConfigError: a key unknown, missing or out of range, a number without source.
TrainingStack stack_from_json(const JsonValue& object, std::string_view where);

// The kernel that runs: "megatron_fused_softmax" for GPT's block where the stack of that year (0: not known) kept scores by
// default, and for "unfused" where the stack has one kernel for it. Tables mostly infer kernels; which one a system ran by default
// is known better.
std::string_view attention_that_ran(const TrainingStack& stack, std::string_view named, bool plain_block, int year);

// The stack of a framework's name, however its words are joined ("Megatron-LM"), and a year (0: not known; the last one), or
// nullptr.
const TrainingStack* find_stack(const std::vector<TrainingStack>& stacks, std::string_view framework, int year);

// Attention whose scores lie in memory, as batched GEMMs with row kernels between them.
struct ScoreKernels {
  std::string_view name;
  RowTraffic scores;           // bytes per score
  double kernels = 0;          // forward
  double saved_bytes = 0;      // per score
  double transient_bytes = 0;  // per score, while one block runs
};
// nullptr: a fused kernel, whose rates the hardware profile has.
const ScoreKernels* find_score_kernels(std::string_view attention);

}  // namespace trident
