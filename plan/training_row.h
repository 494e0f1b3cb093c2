// A training run as published tables describe it: model, cluster, layout, batch, precision and the software that ran.
//
// The row's results are never looked at. What a row does not say (null) is filled by one rule for all rows and listed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "plan/kernel_cost.h"
#include "plan/schedule_words.h"

namespace trident {

enum class Recompute { kNone, kSelective, kPerOperation, kFull };

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

  std::string framework, attention;
  bool fused_norm = false;
  int year = 0;

  double head_dim() const { return hidden / heads; }
  double query_width() const { return hidden; }
  double kv_width() const { return kv_heads * head_dim(); }
};

struct AssumedValue {
  std::string path;  // "batch.micro"
  JsonValue value;
};

struct RowReading {
  TrainingRow row;
  bool sequence_parallel_open = false;  // the row does not say, and has tensor parallelism: as its stack does
  std::vector<AssumedValue> assumed;
  std::string unsupported;  // why this row cannot be priced; empty: it can
};

// Throws UnsupportedCase: a number that every run has is missing or out of range.
RowReading read_training_row(const JsonValue& object);

}  // namespace trident
