// Which layouts of a model on a number of GPUs there are to look at, and why others cannot be. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/named_enum.h"
#include "core/recompute_policy.h"
#include "core/zero_policy.h"
#include "model/config/model_config.h"
#include "pipeline/schedule/schedule_generators.h"

namespace trident {

// Where the ranks of a run stand, and what they do alike.
struct SearchLayout {
  int data = 1, context = 1, pipeline = 1, tensor = 1;
  bool sequence_parallel = false;
  int virtual_stages = 1;
  ScheduleKind schedule = ScheduleKind::k1f1b;
  std::int64_t micro = 1;
  ZeroPreset zero = ZeroPreset::kZero1;
  bool reduces_once = false;  // parallel.grad_sync: "step", else the preset's
  RecomputePolicy recompute = RecomputePolicy::kNone;
  int shard_ranks = 0;  // hybrid sharding: ZeRO within groups of so many data ranks, copies between them; 0: over all

  bool trainable() const { return context == 1 && shard_ranks == 0; }  // by this program, today
  int data_shard_ranks() const { return shard_ranks > 0 ? shard_ranks : data * context; }
  int gpus() const { return data * context * pipeline * tensor; }
  ZeroPolicy policy() const;
  bool operator==(const SearchLayout&) const = default;
};

// "zero3 reducing once".
std::string zero_text(const SearchLayout& layout);

// Whether two layouts are variations of one: ranks stand alike, and anything else may differ.
bool are_variations(const SearchLayout& a, const SearchLayout& b);

// "6DP x 64PP x 8TP, sequence parallel, interleaved of 2 chunks, micro-batches of 1, zero1, recompute selective".
std::string to_string(const SearchLayout& layout);

// Why a layout is no candidate.
enum class Rejection : std::uint8_t {
  kHeads,
  kSequence,
  kTooFewBlocks,
  kBatch,
  kInterleaving,
  kTooManyMicroBatches,
  kMemory,
  kSame,
  kHeld
};
template <>
inline constexpr std::array<std::string_view, 9> kNamesOf<Rejection>{
    "heads do not divide", "sequence does not divide", "fewer blocks than stages", "batch not divisible",
    "micro-batches no multiple of the pipeline", "too many micro-batches", "does not fit", "the same as with another preset",
    "another value than --set gives"};
inline constexpr std::size_t kNumRejections = kNamesOf<Rejection>.size();

struct Rejected {
  std::int64_t layouts = 0;
  std::string example;  // the first one, with its numbers
};
using Rejections = std::array<Rejected, kNumRejections>;

struct SearchSpace {
  int gpus = 1;
  std::int64_t global_batch = 1, sequence = 1;
  std::vector<std::int64_t> micro = {1, 2, 4, 8, 16};  // search_layouts() asks micro_batches_of()
  std::vector<int> virtual_stages = {1, 2, 3, 4, 6, 8};
  std::vector<RecomputePolicy> recompute = {RecomputePolicy::kNone, RecomputePolicy::kSelective, RecomputePolicy::kFull};
  // shard_grad_op is not among them: with a backward behind every forward it keeps what zero2 keeps. Nor is zero2 with
  // one reduction: that is zero1.
  std::vector<ZeroPreset> zero = {ZeroPreset::kDdp, ZeroPreset::kZero1, ZeroPreset::kZero2, ZeroPreset::kZero3};
};

// Sizes of a micro-batch that a search looks at, ascending: each divisor of the batch up to 16 sequences or kMicroBatchTokens,
// whichever is more, and `asked`, which may be no divisor. Beyond that a GPU's products are as fast as they get.
inline constexpr std::int64_t kMicroBatchTokens = 131072;
std::vector<std::int64_t> micro_batches_of(std::int64_t global_batch, std::int64_t sequence, std::int64_t asked);

// All that the model, the batch and the schedules allow; what is not is counted in `rejections`. Throws ConfigError: no GPUs, a
// batch below 1.
std::vector<SearchLayout> enumerate_layouts(const SearchSpace& space, const ModelConfig& model, Rejections& rejections);

}  // namespace trident
