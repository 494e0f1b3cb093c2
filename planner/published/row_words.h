// Words of published tables are read here: sharding, recomputation, precision, networks, schedules. Letters' case does not count.
// Words that say something which is not priced give nothing, never the nearest thing that is.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "planner/price/kernel_cost.h"
#include "planner/published/simulated_schedules.h"

namespace trident {

struct ZeroWords {
  int stage = 0;           // 0-3
  bool by_number = false;  // a ZeRO stage; false: none, or Megatron's distributed optimizer
  bool operator==(const ZeroWords&) const = default;
};
// "FSDP", "full_shard", "SHARD_GRAD_OP", "zero-3", "ZeRO stage 2", "dist-opt", "none", ...; nothing: shards within groups of ranks,
// offload.
std::optional<ZeroWords> zero_of(std::string_view text);

enum class Recompute { kNone, kSelective, kPerOperation, kFull };
// "none", "selective", "selective core_attn", "selective per-op", "full", "full (every layer)", ...; nothing: of some layers.
std::optional<Recompute> recompute_of(std::string_view text);
std::string_view to_string(Recompute recompute);

struct PrecisionWords {
  bool bf16 = false;  // bfloat16 or narrower, and not fp16 beside it
  bool compiled = false;
  bool by_name = false;  // a format is named; false: only that it is mixed
  MathFormat format = MathFormat::k16Bit;
};
// "bf16", "fp16 mixed", "amp_fp8", "MXFP8", "NVFP4", "bf16+compile", ...; nothing: single precision, integers.
std::optional<PrecisionWords> precision_of(std::string_view text);

// "8x HDR 200 Gb/s IB per node", "1600 Gb/s RoCE per node", "400 Gbps per GPU", "3.2 Tb/s": bytes per second of a node with so many
// GPUs; 0: the text does not say. What belongs together stands between separators.
double network_of(std::string_view text, double gpus_per_node);

// "8x H100 96GB HBM2e": GB of a GPU's memory; 0: the text does not say, or says several.
double memory_of(std::string_view text);

struct ScheduleWords {
  SimulatedKind order = SimulatedKind::k1f1b;  // interleaved where there are several chunks on a rank
  bool interleaved = false;         // said, so that a rank has several stages
  bool waits_for_all = false;       // the norm of all gradients ends the step of a zero-bubble order
  bool blocks_by_cost = false;      // blocks moved away from the stages that hold the vocabulary
  bool vocabulary_divided = false;  // embedding and head over all stages
  double more_in_flight = 0;        // micro-batches beyond those of the order
  double in_flight_factor = 1;
  std::string unknown;  // the first word that is not known, or names another order beside one; empty: all are
};

// "ZB-2p + all-reduce optimizer sync", "1F1B vocab-1", "V-Half", "ZBV"; letters' case does not count, nor do dashes. No words: one
// forward, one backward.
ScheduleWords read_schedule_words(std::string_view name);

}  // namespace trident
