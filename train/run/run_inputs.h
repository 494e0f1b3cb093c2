// The ranks of a run are given these: the plan, the data, the tokens' lengths. prepare_run (train/launch/prepare_run.h) makes them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch_loader.h"
#include "train/plan/run_plan.h"
#include "train/run/resume.h"
#include "train/run/sample_maker.h"

namespace trident {

// Identifies one source of the data, wherever its files lie, for comparison between ranks.
struct DataFacts {
  std::string label;    // TokenSource::label
  std::string sizes;    // "10 documents, ..."
  std::string content;  // a hash of what sample_dataset() looks at; empty where another process of the node does
  std::string tokenizer = "";  // the fingerprint of the one that made it, where its record says so; empty likewise
};

// Read-only while the ranks run; ranks that are threads share it.
struct RunInputs {
  RunPlan plan;
  TokenSources sources;
  std::vector<DataFacts> data_facts;      // of the training sources, then of the validation sources
  DocumentRules documents = {};           // of the samples of all sources
  std::vector<std::int32_t> token_bytes;  // of every token's text; empty without a tokenizer, or where another process has them
  double ranks_at_once = 1;               // of all nodes together: those that have cores, or a GPU, to themselves
  bool one_machine = false;               // several nodes are, as containers or namespaces
  double peak_flops = 0;                  // that the makers name for all GPUs together; 0: to be measured
  // Bytes of a rank's arena, by pipeline stage, as a dry run has them; of GPUs without workspaces.
  std::vector<std::int64_t> dry_arenas;
  std::int64_t dry_staging = 0;           // DryRun::staging of all ranks, where the run saves on its way
  int local_ranks = 1;                    // of this node, which share its memory
  std::optional<int> first_core;          // of this process's first rank, when ranks are pinned
  std::optional<Resume> resume;           // the checkpoint to go on from
  std::shared_ptr<const SampleMaker> samples;  // made at every evaluation; nullptr: none
  std::string checkpoint_fault;           // why nothing can be saved in checkpoint.dir, where nobody gave checkpoint.every
  std::vector<std::string> warnings;      // of the configuration, one line each
  std::optional<Resume> initial;          // the one whose weights the run begins with, unless it goes on
  std::optional<Resume> reference;        // the one that `reference` names, unless it goes on

  std::vector<DataFacts> training_facts() const;  // data_facts of the training sources
};

// Loaders of one rank. `resume`, which goes on, says where the rule that blends sources begins.
BatchLoader train_loader(const RunInputs& inputs, const std::optional<Resume>& resume);
// The samples of one source in the order of its file.
BatchLoader loader_in_order(const RunInputs& inputs, const TokenSource& source);

// A file that is held out, or of data.split the held-out part of one: it is evaluated by itself.
struct ValidationSet {
  std::string name;   // the last part of its path, or all of it where two end alike
  double weight = 1;  // in the mean of all sets; they sum to 1
  BatchLoader loader;
  std::int64_t samples = 0;  // of an evaluation
  std::span<const float> reference = {};  // of its pairs, with loss.type "dpo", as RankTrainer::evaluate() takes it
};
// An evaluation takes so many samples of a set, none of them twice.
std::int64_t eval_samples(const TrainConfig& config, std::int64_t samples_of_set);
std::vector<ValidationSet> validation_sets(const RunInputs& inputs);

}  // namespace trident
