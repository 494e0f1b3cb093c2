// The lines at the start of a run that say what it reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/token_source.h"
#include "train/plan/run_plan.h"

namespace trident {

struct DataSummary {
  // "data: corpus/text, 5.2 M tokens, 20,312 samples of 256 tokens; this run takes 1.6 epochs"; of several files their sums. Packs
  // are said with how full they are and how many of their tokens carry loss.
  std::string line;
  // "eval: 16 of 140 samples each time, eval.steps x batch.global; --set eval.steps=18 takes all"; "": every evaluation takes all.
  std::string evaluation;
  // How many steps run.epochs is, and how much a third share of data.split leaves to nobody, unless that is Megatron's default.
  std::vector<std::string> notes;
  // A line for each of several training files, and for those that are held out. Of many files the first eight.
  std::vector<std::string> details;
};
// `taken`: the samples that the run will have taken at its end, where steps were made with another batch.global, or skipped.
DataSummary data_summary(const RunPlan& plan, const TokenSources& sources, std::optional<std::int64_t> taken = std::nullopt);

// One for each file of whose documents data.split leaves none to the share that is held out, although it asks for one.
std::vector<std::string> empty_share_warnings(const TrainConfig& config, const TokenSources& sources);

}  // namespace trident
