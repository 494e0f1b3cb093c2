// A training run as published tables describe it: model, cluster, layout, batch, precision and the software that ran.
//
// The row's results are never looked at. What a row does not say (null) is filled by one rule for all rows and listed.
#pragma once

#include <string>
#include <vector>

#include "core/json_reader.h"
#include "planner/price/kernel_cost.h"
#include "planner/published/row_words.h"
#include "planner/published/run_fields.h"

namespace trident {

struct TrainingRow {
  std::string id;

  int layers = 0;
  double hidden = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0, sequence = 0;
  std::string activation;  // "gelu", "swiglu", "squared-relu", ...
  bool gated = false;      // two branches; RMSNorm, rotary positions and no biases go with it
  bool plain_block = false;  // GPT's block: LayerNorm, learned positions, biases and dropout where the stack has them
  bool tied = false;

  std::string gpu;
  int gpus = 1, gpus_per_node = 8;
  double network_bytes_per_s = 0;  // per node, where the row says it; 0: the usual node's
  double memory_gb = 0;            // of a GPU, where the text about the cluster says it; 0: as `gpu`'s

  int tp = 1, pp = 1, vpp = 1, dp = 1, cp = 1;
  bool sequence_parallel = false;
  int zero = 0;                 // 0-3
  bool zero_by_number = false;  // a ZeRO stage; false: none, or Megatron's distributed optimizer
  ScheduleWords schedule;
  double global_batch = 0, micro_batch = 0;
  double micro_batches = 0;  // per replica and step

  bool bf16 = false;
  bool compiled = false;
  MathFormat format = MathFormat::k16Bit;
  Recompute recompute = Recompute::kNone;
  double full_share = 0;  // of each stage's blocks, those that recompute in full; the others by `recompute`
  double offloaded_share = 0;  // of each stage's blocks, those whose tensors move to the host and back beside computing

  std::string framework, attention;
  bool fused_norm = false;
  int year = 0;

  double head_dim() const { return hidden / heads; }
  double query_width() const { return hidden; }
  double kv_width() const { return kv_heads * head_dim(); }
};

// The stack decides these fields, which a row does not say (planner/published/run_answers.cpp).
struct OpenFields {
  bool sequence_parallel = false;  // with tensor parallelism
  bool zero = false;
  bool recompute = false;
  bool attention = false;
  bool fused_norm = false;  // with RMSNorm
};

struct RowReading {
  TrainingRow row;
  OpenFields open;
  std::vector<AssumedValue> assumed;
  std::vector<std::string> not_read;  // members that the row says and no price depends on
};

// The virtual stages of rank r are r, r + p, ...; V-shaped schedules have r and 2p - 1 - r.
int rank_of_stage(const TrainingRow& row, int virtual_stage);

// Throws UnsupportedCase naming the member: missing where every run has it, of another kind or out of range, words that are not
// priced, degrees that do not divide.
RowReading read_training_row(const JsonValue& object);

}  // namespace trident
