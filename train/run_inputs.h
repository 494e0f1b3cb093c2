// What a run reads and decides before its ranks have devices: the plan, the data, the tokens' lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/batch_loader.h"
#include "train/run_plan.h"

namespace trident {

// Read-only while the ranks run; ranks that are threads share it.
struct RunInputs {
  RunPlan plan;
  TokenSources sources;
  std::vector<std::int32_t> token_bytes;  // of every token's text; empty without a tokenizer, or where another process has them
  double ranks_at_once = 1;               // of all nodes together: those that have cores, or a card, to themselves
  double peak_flops = 0;                  // that the makers name for all cards together; 0: to be measured
  std::optional<int> first_core;          // of this process's first rank, when ranks are pinned
};

// The ranks that this process prepares for: all of them as threads, or itself as one of a job.
struct RunPlace {
  int world_size = 0;    // 0: no launcher, the degrees say how many ranks there are
  int first_local = 0;   // this process's first rank among the ranks of its node
  int nodes = 1;
  int local_ranks = 0;   // of the node, which share its memory and cores; 0: all ranks
  std::vector<std::string> cards = {};  // names of all that the run computes on, each card once
  bool reads_all = true; // false: another process of the node reads the tokenizer and looks through the data ahead of the run
};

// Everything that can be known without a rank; refuses what cannot be trained on. ConfigError, DataError, StorageError.
RunInputs prepare_run(const TrainConfig& config, const RunPlace& place, const MachineFacts& machine);

// Ranks that the configuration's degrees ask for; "auto" counts as one.
std::int64_t ranks_of(const ParallelConfig& parallel);

// What identifies the data of a run, whatever its paths: sizes, types, and a hash of tokens, spread through every source or, up to
// 16 million of a source, all of them. For comparison between ranks.
enum class DataDepth : std::uint8_t { kSome, kAll };
std::string data_fingerprint(const TokenSources& sources, DataDepth depth);

// Loaders of one rank.
BatchLoader train_loader(const RunInputs& inputs);

// A file that is held out, or of data.split the held-out part of one: it is evaluated by itself.
struct ValidationSet {
  std::string name;   // the last part of its path, or all of it where two end alike
  double weight = 1;  // in the mean of all sets; they sum to 1
  BatchLoader loader;
};
std::vector<ValidationSet> validation_sets(const RunInputs& inputs);

}  // namespace trident
