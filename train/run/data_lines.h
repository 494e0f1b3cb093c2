// The lines at the start of a run that say what it reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/token_source.h"
#include "train/plan/run_plan.h"

namespace trident {

// "data: corpus/text, 5.2 M tokens, 20,312 samples of 256 tokens; this run takes 1.6 epochs" for each training file, likewise for
// those that are held out, and how much a third share of data.split leaves to nobody. Of many files the first eight.
std::vector<std::string> data_lines(const RunPlan& plan, const TokenSources& sources);

}  // namespace trident
