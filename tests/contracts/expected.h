// Says what a training step must send and hold, by arithmetic on configuration numbers alone: the formulas of
// docs/design/communication.md, written down a second time. Includes nothing of the program.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trident::contracts {

struct ModelNumbers {
  std::string type{};// gpt2, llama, qwen2, qwen3, olmo2
  std::int64_t vocabulary = 97, hidden = 32, layers = 4, heads = 4, kv_heads = 2, head_dim = 8, ffn = 48, positions = 32;
  bool tied = false;

  bool gpt2() const { return type == "gpt2"; }  // learned positions, LayerNorm, GELU, biases everywhere
  bool qkv_bias() const { return gpt2() || type == "qwen2"; }
  bool qk_norm() const { return type == "qwen3"; }
  // Norms after the two parts of a block, and over all heads of queries and of keys.
  bool olmo2() const { return type == "olmo2"; }
};

struct ContractCase {
  std::string name{};
  ModelNumbers model{};
  int tensor = 1, pipeline = 1, data = 1, chunks = 1;
  bool sequence_parallel = false;
  std::string zero = "zero1", schedule = "1f1b", recompute = "none";
  std::int64_t head_chunk = 0;  // rows of logits at a time
  std::int64_t sync_every = -1;  // micro-batches per gradient sync; 0: once a step; -1: the preset's own
  std::string gather{};          // resident, per_micro_batch, per_use; empty: the preset's own
  std::vector<int> layers{};     // per virtual stage; empty: equal
  std::int64_t micro = 1, micro_batches = 4, sequence = 8;
  std::int64_t compute_bytes = 4;
  double bucket_mb = 25;
  bool overlap = true;
  std::string tuning{};  // sections of what trains, as JSON; the formulas are those of full training

  int world() const { return tensor * pipeline * data; }
  bool shards_sequence() const { return sequence_parallel && tensor > 1; }
  bool shards_state() const { return zero != "ddp"; }
  std::string gather_policy() const;
  std::int64_t every() const;       // micro-batches per gradient sync, 0: once a step
  std::int64_t reductions() const;  // of a unit, per step
};

struct ExpectedBucket {
  std::int64_t elements = 0;  // padded to data x whole 64-element blocks
  std::int64_t owned = 0;     // whose optimizer state lies on one rank
  int partial = 1;            // tensor ranks over which gradients are partial sums
  bool tied = false;
};

// Buckets of unit 0 (embedding), 1 .. layers (blocks), layers+1 (head) on one rank.
std::vector<ExpectedBucket> expected_buckets(const ContractCase& c, std::int64_t unit);
std::int64_t expected_elements(const ContractCase& c, std::int64_t unit);
// Units on a pipeline rank.
std::vector<std::int64_t> expected_units(const ContractCase& c, int pipeline_rank);

// This passes through a rank's memory for a while, in elements. `gathered`: the most that is complete at once where units are
// gathered on use, 0 where they stay because nothing would be saved. `gradients`: the most full gradients at once where these are
// transient, else 0.
struct ExpectedRegions {
  std::int64_t gathered = 0, gradients = 0;
};
ExpectedRegions expected_regions(const ContractCase& c, int pipeline_rank);

// "tp all_reduce" -> bytes of one step, summed over all ranks; entries that are zero are left out.
using Bytes = std::map<std::string, std::int64_t>;
Bytes expected_bytes(const ContractCase& c);

}  // namespace trident::contracts
